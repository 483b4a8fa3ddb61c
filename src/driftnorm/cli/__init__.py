"""The command line: one verb per file, each imported only when it is called.

Nothing here may import torch: ``driftnorm --help`` must be instant.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import cyclopts

from driftnorm._internal.process_memory import keep_freed_memory
from driftnorm._version import __version__
from driftnorm.cli._help import HelpPages
from driftnorm.cli._imports import take_imports
from driftnorm.errors import DriftnormWarning

__all__ = ["app", "main"]


class _Program(cyclopts.App):
    """Lists commands by a line each, which needs no import, but describes one in its own words."""

    def parse_commands(self, *given: Any, **how: Any) -> Any:
        found = super().parse_commands(*given, **how)
        for command in found[1]:
            if command.default_command is not None:
                command.help = None  # then it is the docstring
        return found


app = _Program(
    name="driftnorm",
    version=__version__,
    help="Keep trained BatchNorm networks accurate when the data drift. Every command accepts "
    "--import MODULE, which registers your own methods.",
    help_formatter=HelpPages(),
    suppress_keyboard_interrupt=False,  # `main` says what was kept
)
GROUPS = {
    "bench": "Measure methods on shifted data.",
    "train": "Train networks.",
    "sweep": "Train many networks, to choose among them.",
}
# `bench robustness` is the function `bench_robustness` in the module of that name, and so on.
COMMANDS = {
    "demo": "Train, shift, adapt and measure on digits that come with the package.",
    "methods": "List every method, or show one in detail.",
    "data": "List, get and check data sets.",
    "corrupt": "Generate corrupted images in the layout of CIFAR-10-C or of ImageNet-C.",
    "bench robustness": "Measure methods on corrupted images; an interrupted run resumes.",
    "bench domains": "Adapt trained networks to the domains they never saw; settings are selected "
    "on the others.",
    "bench fine-tuned": "Fine-tune on 14 corruptions, test on the 15th; an interrupted run "
    "resumes.",
    "bench streams": "Measure methods on streams that change; an interrupted run resumes.",
    "diagnose": "Will adaptation help this network on these images? A verdict, and its reasons.",
    "adapt": "Predict on your own images while adapting to them; an interrupted run resumes.",
    "export": "Write the adapted network as a plain one, checked against the adapter on your "
    "images.",
    "report": "Make one self-contained page from rows or runs: verdict, tables, charts.",
    "run": "Repeat a command from the config.yaml of its run folder, or from one written by hand.",
    "completion": "Print the script that completes driftnorm's commands and flags in your shell.",
    "plot": "Draw a plot from rows, with the protocol as its footer.",
    "table": "Make a table from rows, or from finished trainings.",
    "train robust": "Train an augmentation baseline into a self-describing checkpoint.",
    "train domains": "Train on all domains except the test domains; an interrupted run resumes.",
    "sweep domains": "Train algorithms with DomainBed's random search; an interrupted sweep "
    "resumes.",
}
# Where that is not so; `views.table` is what a table is.
_TARGETS = {"methods": "methods:list_methods", "data": "data:app", "table": "row_table:table"}


def _register() -> None:
    """Every command by name: its module is imported when it is called."""
    groups: dict[str, cyclopts.App] = {"": app}
    for words, text in COMMANDS.items():
        group, _, name = words.rpartition(" ")
        if group not in groups:
            groups[group] = cyclopts.App(name=group, help=GROUPS[group])
            app.command(groups[group])
        own = words.replace(" ", "_").replace("-", "_")
        target = _TARGETS.get(words, f"{own}:{own}")
        groups[group].command(f"driftnorm.cli.{target}", name=name, help=text)


_register()


def main() -> None:
    """Entry point: usage errors in one line, Ctrl-C without a traceback."""
    keep_freed_memory()
    warnings.formatwarning = _in_one_line(warnings.formatwarning)
    terminated: list[int] = []

    def terminate(number: int, frame: object) -> None:
        terminated.append(number)
        raise KeyboardInterrupt  # or worker processes and their semaphores would be left behind

    signal.signal(signal.SIGTERM, terminate)
    try:
        try:
            sys.argv[1:] = take_imports(sys.argv[1:])
            app(exit_on_error=False, print_error=False)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as a shell reports a process that SIGPIPE has ended
    except KeyboardInterrupt:
        print("\nstopped; what was finished is kept.", file=sys.stderr)
        sys.exit(128 + (signal.SIGTERM if terminated else signal.SIGINT))
    except cyclopts.CycloptsError as error:
        # Its own panel is for terminals: in a log, a line can be searched for.
        print(f"driftnorm: {_of_use(error)}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"driftnorm: {_in_words(error)}", file=sys.stderr)
        sys.exit(2)
    except (ValueError, TypeError, ImportError) as error:
        print(f"driftnorm: {error}", file=sys.stderr)
        sys.exit(2)


def _in_one_line(usual: Callable[..., str]) -> Callable[..., str]:
    """Our warnings without the line of Python that they point at; others as usual."""

    def formatted(
        message: Warning | str, category: type[Warning], *place: object, **more: object
    ) -> str:
        if issubclass(category, DriftnormWarning):
            return f"note: {message}\n"
        return usual(message, category, *place, **more)

    return formatted


def _of_use(error: cyclopts.CycloptsError) -> str:
    """The error in one line; positional arguments are named as in `--help`."""
    if isinstance(error, cyclopts.MissingArgumentError) and error.argument is not None:
        field = error.argument.field_info
        if field.is_positional and error.argument.tokens == []:
            return f"`{field.name.upper()}` is missing; `--help` says what it is."
    return " ".join(str(error).split())


def _in_words(error: OSError) -> str:
    """The error without its errno."""
    if isinstance(error, FileExistsError) and error.filename:
        return f"{error.filename} exists, and is not a folder: give another `--out`."
    if error.strerror is None:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
