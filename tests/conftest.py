"""Small networks of every batch-norm kind, their batches, and a guarded door to timm."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from chromium import Browser
from hypothesis import settings
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftnorm.models import _vision

torch.set_num_threads(1)
# The same examples everywhere, and no failure because a machine is busy.
settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile("steady")

CLASSES = 4

# Jobs that a shell starts in the background ignore Ctrl-C, and so would every process that the
# tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _guarded(package: str, load: Callable[[], object]) -> object:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return load()


@pytest.fixture(scope="session")
def timm() -> object:
    """timm, also where torchvision's CUDA wheel sits beside a CPU torch."""
    _guarded("torchvision", _vision.import_torchvision)
    return _guarded("timm", _vision.import_timm)


@pytest.fixture(scope="session")
def torchvision() -> object:
    return _guarded("torchvision", _vision.import_torchvision)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


class PixelNet(nn.Module):
    """Two normalised convolutions of any dimension, pooled, and a linear classifier."""

    def __init__(self, dims: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        conv: type[nn.Conv2d] = getattr(nn, f"Conv{dims}d")
        self.conv1 = conv(3, 6, 3, padding=1)
        self.bn1 = norm(6)
        self.conv2 = conv(6, 6, 3, stride=2)
        self.bn2 = norm(6)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(6, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.drop(x.flatten(2).mean(dim=2))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x))


class SharedNet(PixelNet):
    """One batch-norm module for both convolutions, registered under one name or under two."""

    def __init__(self, names: int) -> None:
        super().__init__(2, nn.BatchNorm2d)
        self.bn2 = self.bn1
        if names == 1:
            del self.bn2

    def features(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        second = self.bn2 if "bn2" in self._modules else self.bn1
        return self.drop(torch.relu(second(self.conv2(x))).flatten(2).mean(dim=2))


class SequenceNet(nn.Module):
    """BatchNorm1d over ``(N, C, L)`` and over ``(N, C)``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(3, 6, 3, padding=1)
        self.bn1 = nn.BatchNorm1d(6)
        self.hidden = nn.Linear(6, 6)
        self.bn2 = nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x))).mean(dim=2)
        return self.fc(torch.relu(self.bn2(self.hidden(x))))


def _timm_net(timm: object) -> nn.Module:
    from timm.layers import BatchNormAct2d

    return PixelNet(2, lambda c: BatchNormAct2d(c, act_layer=nn.SiLU))


def _frozen_net(torchvision: object) -> nn.Module:
    from torchvision.ops import FrozenBatchNorm2d

    return PixelNet(2, FrozenBatchNorm2d)


def _half_affine_net() -> nn.Module:
    network = PixelNet(2, nn.BatchNorm2d)
    network.bn1 = nn.BatchNorm2d(6, affine=False)
    return network


_BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "1d": SequenceNet,
    "2d": lambda: PixelNet(2, nn.BatchNorm2d),
    "3d": lambda: PixelNet(3, nn.BatchNorm3d),
    "sync": lambda: PixelNet(2, nn.SyncBatchNorm),
    "affineless": _half_affine_net,
    "twice": lambda: SharedNet(names=1),
    "aliased": lambda: SharedNet(names=2),
    "untracked": lambda: PixelNet(2, lambda c: nn.BatchNorm2d(c, track_running_stats=False)),
    "normless": lambda: PixelNet(2, lambda c: nn.GroupNorm(2, c)),
}
_SHAPES = {"1d": (3, 7), "3d": (3, 4, 4, 4)}


@torch.no_grad()
def pretend_trained(network: nn.Module) -> nn.Module:
    """Statistics and affine parameters as training would leave them: not zeros and ones."""
    for module in network.modules():
        if isinstance(module, _BatchNorm) or type(module).__name__ == "FrozenBatchNorm2d":
            if module.running_mean is not None:
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.4, 1.6)
            if module.weight is not None:
                module.weight.uniform_(0.6, 1.4)
                module.bias.normal_(0, 0.3)
    return network.eval()


@pytest.fixture
def network(request: pytest.FixtureRequest) -> Callable[..., nn.Module]:
    """``network(kind)`` builds the same small network each time; other seeds, other weights."""

    def build(kind: str = "2d", seed: int = 0) -> nn.Module:
        foreign = {"timm": _timm_net, "frozen": _frozen_net}
        package = {"timm": "timm", "frozen": "torchvision"}.get(kind)
        loaded = None if package is None else request.getfixturevalue(package)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            built = foreign[kind](loaded) if kind in foreign else _BUILDERS[kind]()
            return pretend_trained(built)

    return build


@pytest.fixture
def batches() -> Callable[..., list[Tensor]]:
    """``batches(kind, count)``: a drifted stream, the same each time."""

    def draw(kind: str = "2d", count: int = 4, size: int = 9, seed: int = 0) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        shape = (size, *_SHAPES.get(kind, (3, 6, 6)))
        return [1.5 * torch.randn(shape, generator=generator) + 0.4 for _ in range(count)]

    return draw


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small network that processes started from here can import."""
    from own_network import make_home

    return make_home(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def _fixed_seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
