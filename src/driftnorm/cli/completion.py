"""``driftnorm completion``."""

from __future__ import annotations

from typing import Annotated, Literal

from driftnorm.cli import app
from driftnorm.cli._flags import SWITCH


def completion(
    shell: Literal["bash", "zsh", "fish"],
    *,
    install: Annotated[bool, SWITCH] = False,
) -> None:
    """Print the script that completes driftnorm's commands and flags in your shell.

    Parameters
    ----------
    shell
        The shell.
    install
        Install it for the shell; for bash and zsh, this adds a line to ~/.bashrc or ~/.zshrc that
        loads it.
    """
    if install:
        print(f"Installed {app.install_completion(shell=shell)}; open a new shell.")
    else:
        print(app.generate_completion(shell=shell))
