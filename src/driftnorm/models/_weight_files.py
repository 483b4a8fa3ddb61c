"""Reading weight files of any origin, safely, with a clear error for files that are not weights.

The format is detected from the content, never from the name: authors' `.pth.tar` are not tar files,
and a `.pt` may be a web page.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any, Literal

import torch

from driftnorm._internal.counts import counted
from driftnorm._internal.files import check_regular
from driftnorm._internal.messages import first_line
from driftnorm.errors import CheckpointError

Problem = Literal[
    "empty", "html", "truncated", "damaged", "foreign", "pickled", "untrusted",
    "architecture", "classes", "values", "undescribed", "version",
]  # fmt: skip

HTML_OPENINGS = (b"<!doctype", b"<html", b"<head", b"<body", b"<?xml")
# torch's files from before 1.6 open with this number as a pickle of its own.
LEGACY_OPENING = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
SHORTEST_FILE = 16  # bytes; every kind of weight file has a longer opening
SAFETENSORS_HEADER_LIMIT = 100_000_000


def read_any(path: str | os.PathLike[str], *, trust: bool = False) -> Any:
    """Reads whatever a safetensors or torch file holds.

    Args:
        path: The file.
        trust: Unpickle Python objects too, which can run any code the file's author chose.

    Returns:
        A dictionary of tensors (safetensors), or the saved object (torch).
    """
    file = Path(path)
    kind = identify(file)
    if kind == "safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(file)
        except SafetensorError as error:
            raise CheckpointError(
                "damaged", f"{file} is a damaged safetensors file: {error}."
            ) from error
    return _read_torch(file, trust)


def identify(file: Path) -> Literal["safetensors", "torch"]:
    """Tells the two kinds of weight files apart, or says what the file is instead."""
    check_regular(file)
    if file.is_dir():
        raise CheckpointError("foreign", f"{file} is a folder; name the weight file in it.")
    size = file.stat().st_size
    if size == 0:
        raise CheckpointError("empty", f"{file} is empty (0 bytes); download or copy it again.")
    if size < SHORTEST_FILE:
        raise _truncated(file, f"it has only {counted(size, 'byte')}")
    with file.open("rb") as stream:
        opening = stream.read(4096)
    if opening.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(HTML_OPENINGS):
        raise CheckpointError("html", _html_message(file, opening))
    if opening.startswith(b"version https://git-lfs"):
        raise CheckpointError(
            "foreign", f"{file} is a Git LFS pointer, not the weights; run `git lfs pull`."
        )
    if opening.startswith(b"PK\x03\x04"):
        _check_zip(file, size)
        return "torch"
    if opening.startswith(LEGACY_OPENING):
        return "torch"
    if opening[8:9] == b"{":
        _check_safetensors(file, size)
        return "safetensors"
    raise CheckpointError(
        "foreign",
        f"{file} is neither a safetensors nor a torch file: it starts with {opening[:12]!r}.",
    )


def _html_message(file: Path, opening: bytes) -> str:
    message = f"{file} is a web page (HTML), not weights: the download gave a page instead."
    if b"google" in opening.lower():
        message += (
            " Google Drive does so for large files and when a quota is used up; open the link in "
            "a browser and confirm the download, or use `gdown`."
        )
    return message


def _check_zip(file: Path, size: int) -> None:
    if not zipfile.is_zipfile(file):
        raise _truncated(file, f"its zip directory is missing after {counted(size, 'byte')}")
    if is_torchscript(file):
        raise CheckpointError(
            "foreign",
            f"{file} is a TorchScript archive, a compiled program: opening it runs its code, and "
            "its batch-norm layers cannot be replaced. Name its architecture as the model and give "
            "the file as weights, trusting it (`--trust`): only its weights are used then. To load "
            "it, save the `state_dict()` of `torch.jit.load(file)` and load that.",
        )
    if _holds(file, "models/model.json"):
        raise CheckpointError(
            "foreign",
            f"{file} is a program that torch.export wrote: its batch-norm layers cannot be "
            "replaced. Use the checkpoint that it was made from; `driftnorm export` writes "
            ".safetensors files that can be adapted again.",
        )
    if not _holds(file, "data.pkl"):
        raise CheckpointError(
            "foreign", f"{file} is a zip archive without torch weights; unpack it first."
        )


def is_torchscript(file: Path) -> bool:
    """Whether a file is a compiled program, which only `torch.jit.load` opens."""
    return zipfile.is_zipfile(file) and _holds(file, "/constants.pkl")


def _holds(file: Path, ending: str) -> bool:
    """Whether a member of a zip archive has a name with this ending."""
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith(ending) for name in archive.namelist())


def _check_safetensors(file: Path, size: int) -> None:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > SAFETENSORS_HEADER_LIMIT:
            raise CheckpointError("foreign", f"{file} is neither a safetensors nor a torch file.")
        header = stream.read(length)
    if len(header) < length:
        raise _truncated(file, f"its header needs {counted(length + 8, 'byte')}, it has {size:,}")
    try:
        tensors = json.loads(header)
        ends = [entry["data_offsets"][1] for name, entry in tensors.items() if name[0] != "_"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(
            "damaged", f"{file} looks like safetensors, but its header cannot be read: {error}."
        ) from error
    expected = 8 + length + max(ends, default=0)
    if size < expected:
        raise _truncated(file, f"its tensors need {counted(expected, 'byte')}, it has {size:,}")


def _truncated(file: Path, evidence: str) -> CheckpointError:
    return CheckpointError(
        "truncated", f"{file} is truncated: {evidence}. Download or copy it again."
    )


def _read_torch(file: Path, trust: bool) -> Any:
    try:
        with warnings.catch_warnings():
            # Either the file loads, or the reason is reported below.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            return torch.load(file, map_location="cpu", weights_only=not trust)
    except MemoryError:
        raise
    except pickle.UnpicklingError as error:
        raise _unpickling_problem(file, error) from error
    except (EOFError, IndexError, struct.error) as error:  # the parser ran out of bytes
        raise _truncated(file, "it ends in the middle of an object") from error
    except (ImportError, AttributeError) as error:
        raise CheckpointError(
            "pickled",
            f"{file} holds Python objects whose code is not installed here: {error}. Save the "
            "model's `state_dict()` where that code is, and load that.",
        ) from error
    except Exception as error:  # a damaged file can make the parser fail in any way
        reason = first_line(error).rstrip(".")
        if re.search("EOF|end of file|truncated", reason, re.IGNORECASE):
            raise _truncated(file, reason) from error
        raise CheckpointError("damaged", f"{file} is a damaged torch file: {reason}.") from error


def _unpickling_problem(file: Path, error: pickle.UnpicklingError) -> CheckpointError:
    text = str(error)
    if "truncated" in text:
        return _truncated(file, "it ends in the middle of an object")
    found = re.search(r"GLOBAL ([\w.]+)", text)
    reason = re.search(r"WeightsUnpickler error:\s+(.+)", text)
    what = f" ({found[1]})" if found else f" ({reason[1].strip()})" if reason else ""
    return CheckpointError(
        "pickled",
        f"{file} holds pickled content{what} beyond plain tensors. Unpickling runs code "
        "chosen by the file's author, so it is refused. Save the model's `state_dict()` instead, "
        "or pass trust=True (`--trust`) if you trust the source.",
    )
