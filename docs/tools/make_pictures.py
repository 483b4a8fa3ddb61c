"""Draw the pictures of the documentation, and keep the numbers behind them.

    python docs/tools/make_pictures.py

Needs matplotlib and, for the sample photograph, scikit-learn. Everything is seeded; another version
of torch may train a slightly different network, and then numbers and pictures change together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from concept_run import (
    PATHS,
    SEVERITY,
    SHIFT,
    SHOWN_LAYER,
    ConceptRun,
    concept_run,
    gradients,
    layer_inputs,
    measured,
)
from PIL import Image

from driftnorm.diagnosis.layer_drift import channel_distance
from driftnorm.functional import batch_moments
from driftnorm.shifts import contact_sheet

matplotlib.use("agg")
from matplotlib import pyplot

DOCS = Path(__file__).resolve().parent.parent
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "driftnorm",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
CLEAN, SHIFTED, MENDED = "#4477aa", "#ee6677", "#228833"
IMAGES_SHOWN = (0, 3, 5, 9)


def draw_statistics(run: ConceptRun, numbers: dict[str, Any]) -> None:
    """What the shift does to a channel, and to every layer."""
    clean = layer_inputs(run, run.clean, "source")[SHOWN_LAYER]
    shifted = layer_inputs(run, run.shifted, "source")[SHOWN_LAYER]
    source = run.source[SHOWN_LAYER]
    channel = int(channel_distance(source, batch_moments(shifted), 1e-5).argmax())
    mean, deviation = float(source.mean[channel]), float(source.var[channel]) ** 0.5
    values = {"clean": clean[:, channel].flatten(), SHIFT: shifted[:, channel].flatten()}
    own = values[SHIFT]
    normal = {
        "clean, source statistics": ((values["clean"] - mean) / deviation, CLEAN),
        f"{SHIFT}, source statistics": ((own - mean) / deviation, SHIFTED),
        f"{SHIFT}, its own statistics": ((own - own.mean()) / own.std(), MENDED),
    }
    canvas, axes = pyplot.subplots(1, 3, figsize=(9.6, 3.2), layout="constrained")
    for name, colour in (("clean", CLEAN), (SHIFT, SHIFTED)):
        axes[0].hist(values[name], bins=60, density=True, alpha=0.6, color=colour, label=name)
    axes[0].axvline(mean, color="black", linewidth=1)
    axes[0].axvspan(mean - deviation, mean + deviation, color="black", alpha=0.08)
    axes[0].set_title("what the layer receives")
    axes[0].set_xlabel("line and grey band: mean and deviation in training")
    for name, (points, colour) in normal.items():
        axes[1].hist(points, bins=60, density=True, histtype="step", color=colour, label=name)
    axes[1].set_title("what it makes of it")
    axes[1].set_xlabel("normalised value")
    axes[1].set_ylim(top=1.35 * axes[1].get_ylim()[1])  # the legend above the curves
    places, width = np.arange(len(numbers["layers"])), 0.27
    for index, (kind, colour) in enumerate(
        zip(numbers["distance"], (CLEAN, SHIFTED, MENDED), strict=True)
    ):
        heights = list(numbers["distance"][kind].values())
        axes[2].bar(places + (index - 1) * width, heights, width, color=colour, label=kind)
    axes[2].set_title("distance from training, by layer")
    axes[2].set_xticks(places, [f"BN {number + 1}" for number in places])
    axes[2].set_ylabel("deviations of the source")
    axes[2].set_ylim(top=1.4 * max(max(each.values()) for each in numbers["distance"].values()))
    for each in axes:
        each.legend(frameon=False, fontsize=7)
    _save(canvas, "concept-statistics.svg")


def draw_stray(numbers: dict[str, Any]) -> None:
    """How far statistics of few images are from those of the stream."""
    canvas, axes = pyplot.subplots(figsize=(6.5, 3), layout="constrained")
    for (name, values), colour in zip(numbers["stray"].items(), (SHIFTED, MENDED), strict=True):
        axes.plot(range(1, len(values) + 1), values, color=colour, label=name)
    axes.set_xlabel("batch of 8 images")
    axes.set_ylabel("distance from the\nwhole stream's statistics")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    _save(canvas, "concept-running.svg")


def draw_gradient(run: ConceptRun, numbers: dict[str, Any]) -> None:
    """The gradient at the image with either path, and what share of it batch norm undoes."""
    found = {path: gradients(run, path) for path in PATHS}
    count = len(IMAGES_SHOWN)
    canvas = pyplot.figure(figsize=(9.6, 3.6), layout="constrained")
    halves: Any = canvas.subfigures(1, 2, width_ratios=(1.1, 1))
    left, right = halves
    grid = left.subplots(3, count)
    for column, image in enumerate(IMAGES_SHOWN):
        grid[0, column].imshow(run.shifted[image, 0], cmap="gray")
        maps = [found[path].images[image, 0] for path in PATHS]
        limit = float(torch.stack(maps).abs().max())
        for row, shown in enumerate(maps, start=1):
            grid[row, column].imshow(shown, cmap="RdBu", vmin=-limit, vmax=limit)
    for row, title in enumerate((f"digit in {SHIFT}", *PATHS)):
        grid[row, 0].set_ylabel(title)
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(True)
    left.suptitle("gradient of the entropy at the image", fontsize=10)
    axes = right.subplots()
    places = np.arange(len(numbers["layers"]))
    for index, (path, colour) in enumerate(zip(PATHS, (MENDED, SHIFTED), strict=True)):
        heights = [100 * share for share in numbers["pushing"][path].values()]
        bars = axes.bar(places + (index - 0.5) * 0.35, heights, 0.35, color=colour, label=path)
        axes.bar_label(bars, fmt="%.1f")
    axes.set_xticks(places, [f"BN {number + 1}" for number in places])
    axes.set_ylabel("% of the squared gradient")
    axes.set_title("shifts or scales a whole channel", fontsize=10)
    axes.legend(frameon=False)
    _save(canvas, "concept-gradient.svg")


def draw_corruptions() -> None:
    """One photograph under all corruptions; frost is the stand-in, whose pictures are ours."""
    from sklearn.datasets import load_sample_image

    photograph = Image.fromarray(load_sample_image("china.jpg"))
    side = min(photograph.size)
    left = (photograph.width - side) // 2
    square = photograph.crop((left, 0, left + side, side)).resize((224, 224), Image.Resampling.BOX)
    sheet = contact_sheet(np.asarray(square), size=112, frost="procedural")
    sheet.save(DOCS / "pictures" / "corruptions.jpg", quality=80, optimize=True)


def _save(canvas: Any, name: str) -> None:
    path = DOCS / "pictures" / name
    canvas.savefig(path, metadata={"Date": None})
    pyplot.close(canvas)
    print(f"wrote {path.relative_to(DOCS.parent)}")


def main() -> None:
    """Everything."""
    torch.set_num_threads(1)
    run = concept_run()
    numbers = measured(run)
    rounded = json.loads(json.dumps(numbers), parse_float=lambda text: round(float(text), 4))
    (DOCS / "rows" / "concepts.jsonl").write_text(json.dumps(rounded) + "\n")
    with pyplot.rc_context(STYLE):
        draw_statistics(run, rounded)
        draw_stray(rounded)
        draw_gradient(run, rounded)
    draw_corruptions()
    print(f"the pictures show {SHIFT} {SEVERITY}, seed 0")


if __name__ == "__main__":
    main()
