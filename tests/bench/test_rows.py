"""Rows on disk: what is not a row is named with its place."""

from pathlib import Path

import pytest
from made_rows import made_row

from driftnorm.bench.rows import RowStore, load_rows, save_rows


def test_rows_come_back(tmp_path: Path) -> None:
    rows = [made_row("bn"), made_row("tent")]
    save_rows(rows, tmp_path / "rows.jsonl")
    for row in rows:
        RowStore(tmp_path / "rows").write(row)
    for path in (tmp_path / "rows.jsonl", tmp_path / "rows"):
        assert {row.cell.key for row in load_rows(path)} == {row.cell.key for row in rows}


def test_a_line_that_was_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    save_rows([made_row("bn"), made_row("tent")], file)
    file.write_text(file.read_text()[:-40])
    with pytest.raises(
        ValueError, match=r"rows\.jsonl, line 2 is not a driftnorm row .*JSONDecodeError"
    ):
        load_rows(file)
    file.write_text("[1, 2]\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 1 is not a driftnorm row"):
        load_rows(file)


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"cell": 3}', '{"cell": {"a": 1}}', ""])
def test_a_stranger_among_rows(tmp_path: Path, content: str) -> None:
    RowStore(tmp_path).write(made_row())
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(ValueError, match=r"settings\.json is not a driftnorm row"):
        load_rows(tmp_path)


def test_a_run_of_adapt_is_not_to_be_removed(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"images": 3, "predicted": 3}')
    with pytest.raises(ValueError, match="`driftnorm report` shows runs of `driftnorm adapt`") as e:
        load_rows(tmp_path)
    assert "Remove" not in str(e.value)


def test_binary_data_in_place_of_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.npz").write_bytes(b"PK\xff\xfe")
    with pytest.raises(ValueError, match=r"rows\.npz holds no driftnorm rows, but binary data"):
        load_rows(tmp_path / "rows.npz")
