"""Methods that must see the source's images first, on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from own_network import WANTED, drifting, rows, run

import driftnorm
from driftnorm.models import open_model


@pytest.fixture
def data(home: Path) -> Path:
    np.save(home / "stream.npy", drifting(96))
    np.save(home / "source.npy", drifting(700)[:640])
    return home / "stream.npy"


def test_eata_is_fitted_to_source_images_before_the_stream(home: Path, data: Path) -> None:
    content = run(
        home, data, "p.csv", method="eata@gprebn", source_images=home / "source.npy", fresh=True
    )
    opened = open_model(
        "driftnorm_test_network:build", mean=WANTED.mean, std=WANTED.std, size=WANTED.size
    )
    torch.manual_seed(0)
    adapter = driftnorm.adapt(opened.network, "eata@gprebn", seed=0)
    pictures = {
        name: torch.from_numpy(np.load(home / f"{name}.npy")).permute(0, 3, 1, 2).float() / 255
        for name in ("stream", "source")
    }
    batches = pictures["source"].split(64)
    adapter.fit([batches[i * 10 // 8] for i in range(8)])
    batches = pictures["stream"].split(16)
    expected = [choice for x in batches for choice in adapter(x).argmax(dim=1).tolist()]
    assert [int(line["class_index"]) for line in rows(content)] == expected


def test_it_is_asked_for_where_it_is_needed_and_refused_where_it_is_not(
    home: Path, data: Path
) -> None:
    with pytest.raises(ValueError, match="give `--source-images`"):
        run(home, data, "p.csv", method="eata", fresh=True)
    with pytest.raises(ValueError, match="it needs none"):
        run(home, data, "p.csv", method="tent", source_images=home / "source.npy", fresh=True)
    run(
        home,
        data,
        "p.csv",
        method="eata",
        source_images=home / "source.npy",
        save_state=home / "eata.state",
        fresh=True,
    )
    again = run(home, data, "again.csv", method="eata", load_state=home / "eata.state", fresh=True)
    assert len(again.decode().splitlines()) > 96
    (home / "empty").mkdir()
    (home / "empty" / "a.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"--source-images.*none could be read.*a\.png"):
        run(home, data, "q.csv", method="eata", source_images=home / "empty", fresh=True)
