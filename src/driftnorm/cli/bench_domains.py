"""``driftnorm bench domains``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from driftnorm.bench.studies.domains import DomainStudy, Targets
from driftnorm.bench.vocabulary import GridSize
from driftnorm.cli._bench import BenchFlags, Methods, bench
from driftnorm.cli._flags import MANY, OUT, Cache
from driftnorm.views.domain_tables import DOMAIN_VIEWS
from driftnorm.views.robustness import find_view
from driftnorm.views.trainings import selected_networks


def bench_domains(
    *,
    data: str,
    models: Annotated[list[Path], MANY],
    methods: Methods = None,
    table: str = "domains",
    grid: GridSize = "full",
    batch_size: int = 32,
    seeds: Annotated[list[int] | None, MANY] = None,
    limit: int | None = None,
    validation_limit: int | None = None,
    targets: Targets = "all",
    cache: Cache = None,
    out: Annotated[Path, OUT] = Path("runs/domains/rows"),
    flags: BenchFlags = BenchFlags(),  # noqa: B008 (cyclopts reads the default)
) -> None:
    """Adapt trained networks to the domains they never saw; settings are selected on the others.

    Parameters
    ----------
    data
        As in `driftnorm train domains`; must be the data that the networks were trained on.
    models
        Files that `driftnorm train domains` wrote (best.safetensors, swad.safetensors), or folders
        of finished trainings; if there are several for one trial, as in a sweep, the best one on
        validation data is used.
    table
        Which table to print at the end, which also sets the default methods: domains,
        domains-ablation, domains-fine-tuned or domains-claims.
    grid
        Select among T3A's values and theta, among fewer, or not at all.
    batch_size
        Images per batch.
    seeds
        Seeds of the streams' order; default: 0.
    limit
        At most this many images of each stream, the target included.
    validation_limit
        At most this many images of each validation split; the targets stay whole.
    targets
        Settings to run on the target; with selected, only those that a table shows: the tables are
        the same, in much less time.
    out
        Folder for the rows.
    """
    given = dict(locals())
    view = find_view(table, DOMAIN_VIEWS)
    study = DomainStudy(
        data=data,
        models=tuple(
            str(path)
            for each in models
            for path in ([each] if each.is_file() else selected_networks(each))
        ),
        methods=tuple(methods or view.methods),
        grid=grid,
        batch_size=batch_size,
        seeds=tuple(seeds or (0,)),
        limit=limit,
        validation_limit=validation_limit,
        cache=cache,
        targets=targets,
        device=flags.device,
    )
    resolved = {"methods": study.methods, "seeds": study.seeds}
    bench(study, view.make, out, flags, "bench domains", given | resolved)
