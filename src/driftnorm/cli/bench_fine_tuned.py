"""``driftnorm bench fine-tuned``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console

from driftnorm._internal.own_code import given_as
from driftnorm.bench.studies.corrupted_streams import stored_corruptions
from driftnorm.bench.studies.corruptions import CorruptionStudy
from driftnorm.bench.studies.fine_tuned import METHODS, FineTunedStudy
from driftnorm.bench.studies.presets import find_preset
from driftnorm.cli._bench import BenchFlags, bench
from driftnorm.cli._corruption_names import settle_corruptions
from driftnorm.cli._flags import MANY, OUT, Frost
from driftnorm.cli._input_flags import tested_images
from driftnorm.training import Optimization
from driftnorm.training.fine_tuning import FineTuning
from driftnorm.views.networks import fine_tuned_table


def bench_fine_tuned(
    *,
    data: Path,
    test_data: Path | None = None,
    model: str,
    weights: Path,
    corruptions: Annotated[list[str] | None, MANY] = None,
    severities: Annotated[list[int] | None, MANY] = None,
    images: int = 1000,
    epochs: float = 2.0,
    learning_rate: float = 0.001,
    limit: int | None = None,
    seed: int = 0,
    frost: Frost = None,
    out: Annotated[Path, OUT] = Path("runs/fine-tuned"),
    flags: BenchFlags = BenchFlags(),  # noqa: B008 (cyclopts reads the default)
) -> None:
    """Fine-tune on 14 corruptions, test on the 15th; an interrupted run resumes.

    At test time, batch size, optimiser and rate are those of Tent's CIFAR example.

    Parameters
    ----------
    data
        Clean training images: a folder of CIFAR's official files, or an .npz.
    test_data
        Clean test images, corrupted on the fly, or a folder in the layout of CIFAR-10-C; default:
        the test split of --data.
    model
        A built-in name such as resnet20.
    weights
        Its pre-trained weights.
    corruptions
        Which ones to leave out, in turn; default: each of the 15. Training always uses the other
        14.
    severities
        Severities of the test; default: 5.
    images
        Training images per corruption, a fifth of them at each severity.
    epochs
        Passes over the training images of all 14 corruptions.
    learning_rate
        Initial rate of SGD with momentum 0.9 and batch 128; decays to 0 along a cosine. With frozen
        statistics, ResNet-20 diverges at 0.003 and above.
    limit
        At most this many test images of each stream.
    seed
        Seed of the training.
    out
        Folder for rows, networks and corrupted training images.
    """
    given = dict(locals())
    met = tested_images(data, test_data)
    setting = find_preset("tent-cifar")
    console = Console(stderr=True, quiet=flags.quiet)
    usual = settle_corruptions(None, frost, console, stored_corruptions(met))
    study = FineTunedStudy(
        FineTuning(
            train=str(data),
            model=model,
            weights=str(weights),
            folder=out,
            corruptions=usual,
            images=images,
            optimization=Optimization(learning_rate=learning_rate, final_rate=0.0, epochs=epochs),
            seed=seed,
            frost=frost,
        ),
        CorruptionStudy(
            data=str(met),
            model=model,
            weights=str(weights),
            methods=METHODS,
            corruptions=tuple(corruptions or usual),
            severities=tuple(severities or setting.severities),
            limit=limit,
            batch_size=setting.batch_size,
            optimising=setting.optimising,
            frost=frost,
            device=flags.device,
        ),
    )
    resolved = {name: getattr(study.pretrained, name) for name in ("corruptions", "severities")}
    with given_as("--model"):
        study.cells()  # raises if anything is wrong with data or network
    bench(study, fine_tuned_table, out, flags, "bench fine-tuned", given | resolved)
