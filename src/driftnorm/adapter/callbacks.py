"""What an adapter reports after each batch, sent to TensorBoard, Weights & Biases or MLflow.

A callback is anything that is called as ``callback(adapter)``. Call it after each batch yourself,
or let :func:`attach` do so. The packages are imported when a callback is made, not before.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from driftnorm._internal.optional import import_optional
from driftnorm.adapter._contract import Adapter

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

__all__ = ["Callback", "MLflow", "TensorBoard", "WandB", "attach", "measurements"]

Callback = Callable[[Adapter], None]


def measurements(adapter: Adapter) -> dict[str, float]:
    """The report on the last batch as numbers; those that it does not have are left out.

    Returns:
        ``samples``, ``adapted`` (1 or 0), ``bad_batches`` and ``alarms`` (counts so far), and if
        the batch was adapted to, ``entropy``, ``spread`` and ``loss``.

    Raises:
        ValueError: The adapter has not seen a batch since it was built or reset.
    """
    report = adapter.last
    if report is None:
        raise ValueError(
            "`adapter` has no report yet: call it on a batch before you call the callback."
        )
    numbers = {
        "samples": report.samples,
        "adapted": report.status == "adapted",
        "bad_batches": adapter.bad_batches,
        "alarms": len(adapter.alarms),
        "entropy": report.entropy,
        "spread": report.spread,
        "loss": math.nan if report.loss is None else report.loss,
    }
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def attach(adapter: Adapter, callback: Callback) -> RemovableHandle:
    """Call ``callback(adapter)`` after each batch.

    Args:
        adapter: The adapter itself, not what ``torch.compile`` returns for it.
        callback: One of this module's, or any function of an adapter.

    Returns:
        A handle; its ``remove()`` detaches the callback.
    """
    if not isinstance(adapter, Adapter):
        raise TypeError(f"`adapter` must be a driftnorm adapter, got {type(adapter).__name__}.")
    if not callable(callback):
        raise TypeError(f"`callback` must be callable, got {type(callback).__name__}.")
    return adapter.register_forward_hook(_Hook(callback))


class _Hook:
    """A forward hook that reports on the module it is called with, so copies report too."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback

    def __call__(self, adapter: nn.Module, inputs: tuple[Any, ...], answer: Any) -> None:
        assert isinstance(adapter, Adapter)
        if torch.compiler.is_compiling():
            # Writing files must not be traced. Only here: `disable` imports the compiler.
            torch.compiler.disable(self.callback)(adapter)  # type: ignore[no-untyped-call]
        else:
            self.callback(adapter)


class _Logger(ABC):
    """Counts batches and names the numbers; the rest is the service's."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.batches = 0  # its own count: an adapter's starts again at every reset

    def __call__(self, adapter: Adapter) -> None:
        """Log the adapter's last batch."""
        numbers = measurements(adapter)
        self._log({f"{self.prefix}/{name}": value for name, value in numbers.items()})
        self.batches += 1

    def __deepcopy__(self, memo: dict[int, Any]) -> _Logger:
        """A copy of an adapter reports to the same place, and counts its own batches."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this process; :meth:`_open` opens it again in another."""
        return {name: value for name, value in self.__dict__.items() if name != "service"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Set ``self.service``: what numbers are sent to."""

    @abstractmethod
    def _log(self, numbers: dict[str, float]) -> None:
        """Send the numbers of batch number ``self.batches``."""


class TensorBoard(_Logger):
    """Writes an event file that ``tensorboard --logdir FOLDER`` shows.

    Args:
        folder: Where to write; created if missing.
        prefix: What the names of the curves begin with.
    """

    def __init__(self, folder: str | Path, prefix: str = "driftnorm") -> None:
        super().__init__(prefix)
        self.folder = str(folder)
        self._open()

    def _open(self) -> None:
        import_optional("tensorboard", "this callback", "tensorboard")
        writing = importlib.import_module("torch.utils.tensorboard")
        self.service: Any = writing.SummaryWriter(self.folder)

    def _log(self, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self.service.add_scalar(name, value, self.batches)

    def close(self) -> None:
        """Write what is left and close the file."""
        self.service.close()

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class WandB(_Logger):
    """Logs to a run of Weights & Biases.

    Args:
        run: What ``wandb.init()`` returned; the current run by default.
        prefix: What the names of the curves begin with.
    """

    def __init__(self, run: Any = None, prefix: str = "driftnorm") -> None:
        super().__init__(prefix)
        self.service = run
        if run is None:
            self._open()

    def _open(self) -> None:
        self.service = import_optional("wandb", "this callback", "wandb").run
        if self.service is None:
            raise ValueError("`run` must be a run, got None and no run is active: `wandb.init()`.")

    def _log(self, numbers: dict[str, float]) -> None:
        # Without a step: a run counts its own, which other code may have advanced.
        self.service.log(numbers)


class MLflow(_Logger):
    """Logs metrics to MLflow.

    Args:
        run_id: Of the run to log to; the active one by default (MLflow starts one if none is).
        prefix: What the names of the metrics begin with.
    """

    def __init__(self, run_id: str | None = None, prefix: str = "driftnorm") -> None:
        super().__init__(prefix)
        self.run_id = run_id
        self._open()

    def _open(self) -> None:
        self.service = import_optional("mlflow", "this callback", "mlflow")

    def _log(self, numbers: dict[str, float]) -> None:
        self.service.log_metrics(numbers, step=self.batches, run_id=self.run_id)
