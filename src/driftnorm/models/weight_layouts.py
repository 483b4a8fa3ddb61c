"""Weights from files of every layout in use, brought to one form and fitted into a network.

The one form is a flat dictionary with the network's own names. Known layouts:

* plain state dicts, or nested under `state_dict`, `model_state_dict` or `model` beside other facts
  (AugMix, AutoAugment, Stylized-ImageNet, MaxBlur-pool and most training scripts);
* names behind `module.` (DataParallel), `model.` (wrappers), `network.` (`Normalized`) or
  `_orig_mod.` (torch.compile), also several of them;
* normalisation constants beside the network: `mu` and `sigma` (RobustBench's AugMix WRN),
  `normalize.mean` and `normalize.std` with `model.*` (RobustBench's ImageNet networks), the same
  in an unnamed Sequential as `0.mean`, `0.std`, `1.*`, and `mean`, `std` of a `Normalized`. They
  come out as `mean` and `std`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm._internal.counts import counted
from driftnorm.errors import CheckpointError
from driftnorm.models._weight_files import read_any
from driftnorm.models.architectures import MODELS
from driftnorm.models.normalized import Normalized

NESTS = ("state_dict", "model_state_dict", "model")
WRAPPERS = ("module.", "model.", "network.", "_orig_mod.", "1.")
CONSTANTS = {
    "mu": "mean", "sigma": "std", "mean": "mean", "std": "std",
    "normalize.mean": "mean", "normalize.std": "std", "0.mean": "mean", "0.std": "std",
}  # fmt: skip
SHOWN = 4  # names quoted in an error

PathLike = str | os.PathLike[str]


def load_weights(path: PathLike, *, trust: bool = False) -> dict[str, Tensor]:
    """Reads the weights in a safetensors or torch file.

    Args:
        path: The file.
        trust: Also accept files with pickled Python objects. Unpickling runs whatever code the
            file's author put there.

    Returns:
        Tensors on the CPU by the network's own names, half precision widened to float32; `mean`
        and `std` too where the file holds normalisation constants. `fit_weights` knows what to do
        with those.

    Raises:
        CheckpointError: The file is not a usable checkpoint; the message and `problem` say why.
    """
    return plain_weights(_state_dict_in(read_any(path, trust=trust), path))


def plain_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Strips wrappers' prefixes from the names and widens half precision to float32."""
    plain = plain_names(state)
    return {plain[name]: _widened(tensor) for name, tensor in state.items()}


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Maps names of a state dict to the same without the prefixes that all of them share.

    Normalisation constants sit beside the wrapped network, so they do not count as bearers of a
    prefix, and have a plain name of their own.
    """
    plain: dict[str, str] = {}
    rest = {name: name for name in names}  # original name -> name with prefixes stripped so far
    prefix: str | None = ""
    while prefix is not None:
        rest = {original: name.removeprefix(prefix) for original, name in rest.items()}
        plain.update({o: CONSTANTS[name] for o, name in rest.items() if name in CONSTANTS})
        rest = {o: name for o, name in rest.items() if name not in CONSTANTS}
        prefix = next((w for w in WRAPPERS if rest and _all_start(rest.values(), w)), None)
    return plain | rest


def head_of(network: nn.Module) -> tuple[str, nn.Linear] | None:
    """The name and module of the classifier: the network's last linear layer."""
    linear = [(n, m) for n, m in network.named_modules() if isinstance(m, nn.Linear)]
    return linear[-1] if linear else None


def classes_in(weights: Mapping[str, Tensor], network: nn.Module) -> int | None:
    """The number of classes in plain weights, by the head that the network has."""
    head = head_of(network)
    if head is None:
        return None
    rows = weights.get(plain_names(network.state_dict())[f"{head[0]}.weight"])
    fits = rows is not None and rows.ndim == 2 and rows.shape[1] == head[1].in_features
    return rows.shape[0] if rows is not None and fits else None


def fit_weights(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    *,
    name: str = "the network",
    source: PathLike = "the given state dict",
    new_head: bool = False,
) -> None:
    """Copies weights into a network, or says why they do not fit.

    Args:
        network: The network; a `Normalized` takes over `mean` and `std` from the weights.
        weights: What `load_weights` gave.
        name: What to call the network in errors.
        source: What to call the weights in errors.
        new_head: Leave the classifier as it is, whatever the weights hold for it.
    """
    inner = network.network if isinstance(network, Normalized) else network
    check_fit(inner, weights, name=name, source=source, new_head=new_head)
    real = {plain: original for original, plain in plain_names(inner.state_dict()).items()}
    skipped = _head_names(inner) if new_head else []
    state = {real[n]: t for n, t in weights.items() if n in real and real[n] not in skipped}
    broken = [n for n, t in state.items() if t.is_floating_point() and not t.isfinite().all()]
    if broken:
        raise CheckpointError(
            "values",
            f"{source} holds NaN or infinite values in {_quoted(broken)}: its training diverged, "
            "or the file is damaged. Take an earlier checkpoint.",
        )
    negative = [n for n, t in state.items() if n.endswith("running_var") and (t < 0).any()]
    if negative:
        raise CheckpointError(
            "values",
            f"{source} holds negative variances in {_quoted(negative)}: the file is damaged, or "
            "its values were changed.",
        )
    inner.load_state_dict(state, strict=False)
    if isinstance(network, Normalized):
        for key in {"mean", "std"} & (weights.keys() - real.keys()):
            buffer: Tensor = getattr(network, key)
            buffer.copy_(weights[key].reshape(-1, 1, 1).expand_as(buffer))


def check_fit(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    *,
    name: str = "the network",
    source: PathLike = "the given state dict",
    new_head: bool = False,
) -> None:
    """Raises a `CheckpointError` unless plain weights are those of the network."""
    layer = head_of(network)
    classes = classes_in(weights, network)
    if classes is not None and layer is not None and not new_head:
        built = layer[1].out_features
        if classes != built:
            raise CheckpointError(
                "classes",
                f"{source} was trained for {counted(classes, 'class')}, {name} was built for "
                f"{built}. Build it with num_classes={classes}, or pass new_head=True to take "
                "everything but the classifier.",
            )
    plain = plain_names(network.state_dict())
    skipped = {plain[n] for n in _head_names(network)} if new_head else set()
    shapes = {plain[n]: tensor.shape for n, tensor in network.state_dict().items()}
    expected = {n: shape for n, shape in shapes.items() if n not in skipped}
    constants = {"mean", "std"} - expected.keys()
    given = {n: t.shape for n, t in weights.items() if n not in skipped | constants}
    differences = _differences(expected, given)
    if differences:
        matches = " or ".join(map(repr, matching_architectures(weights)))
        hint = f" Its names and shapes are those of {matches}." if matches else ""
        message = f"{source} does not fit {name}: {'; '.join(differences)}.{hint}"
        raise CheckpointError("architecture", message)


def matching_architectures(weights: Mapping[str, Tensor]) -> list[str]:
    """Names of the built-in networks with exactly these names and shapes, the head aside."""
    found = []
    for name, facts in MODELS.items():
        state = facts.canonical(weights)
        try:
            shapes, head = _built_shapes(facts.builder, **facts.options_in(state))
        except ValueError:  # the file's shapes ask for an option the network cannot have
            continue
        aside = {*head, "mean", "std"}
        given = {n: tensor.shape for n, tensor in state.items() if n not in aside}
        if not _differences({n: s for n, s in shapes.items() if n not in head}, given):
            found.append(name)
    return found


@functools.lru_cache(maxsize=64)
def _built_shapes(
    builder: Callable[..., nn.Module], **options: Any
) -> tuple[dict[str, torch.Size], list[str]]:
    """Names and shapes of a network, and the names of its head among them."""
    with torch.device("meta"):
        network = builder(**options)
    return {n: t.shape for n, t in network.state_dict().items()}, _head_names(network)


def _head_names(network: nn.Module) -> list[str]:
    head = head_of(network)
    return [] if head is None else [f"{head[0]}.{n}" for n, _ in head[1].named_parameters()]


def _all_start(names: Iterable[str], prefix: str) -> bool:
    return all(name.startswith(prefix) for name in names)


def _is_counter(name: str) -> bool:
    """BN's batch counter, which files from before torch 0.4.1 lack and inference never reads."""
    return name.endswith("num_batches_tracked")


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _state_dict_in(content: Any, source: PathLike) -> Mapping[str, Tensor]:
    """Finds the state dict in what a file holds."""
    if isinstance(content, nn.Module):  # only a trusted file gets this far
        return content.state_dict()
    if not isinstance(content, Mapping):
        raise CheckpointError(
            "foreign",
            f"{source} holds a {type(content).__name__}, not a state dict "
            "(a dictionary of parameter names and tensors).",
        )
    # AugMix's files hold the network's *name* under `model`, so the type decides.
    for nest in NESTS:
        if isinstance(content.get(nest), Mapping | nn.Module):
            return _state_dict_in(content[nest], source)
    if not content or not all(isinstance(value, Tensor) for value in content.values()):
        keys = _quoted([str(key) for key in content]) or "nothing"
        raise CheckpointError(
            "foreign",
            f"{source} is not a checkpoint of a network: its dictionary holds {keys}; expected "
            f"tensors only, or a state dict under {', '.join(NESTS)}.",
        )
    return content


def _differences(expected: Mapping[str, torch.Size], given: Mapping[str, torch.Size]) -> list[str]:
    missing = [n for n in expected if n not in given and not _is_counter(n)]
    unexpected = [n for n in given if n not in expected and not _is_counter(n)]
    reshaped = [
        f"{n} {tuple(given[n])} instead of {tuple(expected[n])}"
        for n in expected
        if n in given and given[n] != expected[n]
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": reshaped}
    return [f"{len(found)} {kind} ({_quoted(found)})" for kind, found in kinds.items() if found]


def _quoted(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
