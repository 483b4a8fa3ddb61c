"""What measures: cells to rows.

Cells, rows and metrics do not need torch; views read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports

if TYPE_CHECKING:
    from driftnorm.bench.cell import Cell as Cell
    from driftnorm.bench.cell import DataId as DataId
    from driftnorm.bench.cell import MethodId as MethodId
    from driftnorm.bench.cell import NetworkId as NetworkId
    from driftnorm.bench.cell import Protocol as Protocol
    from driftnorm.bench.cell import Shift as Shift
    from driftnorm.bench.cell import StreamId as StreamId
    from driftnorm.bench.cell import Training as Training
    from driftnorm.bench.metrics import Interval as Interval
    from driftnorm.bench.metrics import expected_calibration_error as expected_calibration_error
    from driftnorm.bench.metrics import paired_interval as paired_interval
    from driftnorm.bench.protocol import protocol_text as protocol_text
    from driftnorm.bench.rows import Failure as Failure
    from driftnorm.bench.rows import Row as Row
    from driftnorm.bench.rows import RowStore as RowStore
    from driftnorm.bench.rows import load_rows as load_rows
    from driftnorm.bench.rows import save_rows as save_rows
    from driftnorm.bench.runner import Study as Study
    from driftnorm.bench.runner import run as run
    from driftnorm.bench.stream_scores import evaluate as evaluate

_HOMES = {
    "Cell": "cell",
    "DataId": "cell",
    "Failure": "rows",
    "Interval": "metrics",
    "MethodId": "cell",
    "NetworkId": "cell",
    "Protocol": "cell",
    "Row": "rows",
    "RowStore": "rows",
    "Shift": "cell",
    "StreamId": "cell",
    "Study": "runner",
    "Training": "cell",
    "evaluate": "stream_scores",
    "expected_calibration_error": "metrics",
    "load_rows": "rows",
    "paired_interval": "metrics",
    "protocol_text": "protocol",
    "run": "runner",
    "save_rows": "rows",
}
__all__ = [*_HOMES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
