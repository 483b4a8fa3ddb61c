"""WideResNet for 32x32 images: WRN-40-2 and WRN-28-10.

Zagoruyko and Komodakis, "Wide Residual Networks", BMVC 2016. Pre-activation blocks; where the
channels change, the activated input feeds the 1x1 shortcut too. State-dict names are those of
RobustBench's files: `conv1`, `block{1,2,3}.layer.{i}.{bn1,conv1,bn2,conv2,convShortcut}`, `bn1`,
`fc`. The AugMix repository writes `conv_shortcut`, which `NAME_ALIASES` translates.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm.models.resnet import conv1x1, conv3x3

NAME_ALIASES = {"conv_shortcut": "convShortcut"}


class WideBlock(nn.Module):
    """BN, ReLU, 3x3 twice, beside the identity or a 1x1 convolution."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = conv3x3(channels_in, channels_out, stride)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.conv2 = conv3x3(channels_out, channels_out)
        # The name is that of the released files.
        self.convShortcut = (
            None if channels_in == channels_out else conv1x1(channels_in, channels_out, stride)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Returns the block's output."""
        # In place where it overwrites BN's answer, which its backward pass does not need; where BN
        # was folded away, it would overwrite the identity path.
        normed = self.bn1(x)
        active = F.relu(normed, inplace=normed is not x)
        out = self.conv2(F.relu(self.bn2(self.conv1(active)), inplace=True))
        beside = x if self.convShortcut is None else self.convShortcut(active)
        result: Tensor = out + beside
        return result


class WideGroup(nn.Module):
    """Blocks of one width, held under the name `layer`."""

    def __init__(self, channels_in: int, channels_out: int, depth: int, stride: int) -> None:
        super().__init__()
        first = WideBlock(channels_in, channels_out, stride)
        rest = [WideBlock(channels_out, channels_out, 1) for _ in range(depth - 1)]
        self.layer = nn.Sequential(first, *rest)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the group's output."""
        out: Tensor = self.layer(x)
        return out


class WideResNet(nn.Module):
    """The wide residual network for CIFAR.

    Args:
        depth: Convolutional layers on the longest path: 6 n + 4.
        widen: Factor on the widths 16, 32, 64 of the three groups.
        num_classes: Number of outputs.
    """

    def __init__(self, depth: int, widen: int, num_classes: int = 10) -> None:
        super().__init__()
        blocks = (depth - 4) // 6
        self.conv1 = conv3x3(3, 16)
        self.block1 = WideGroup(16, 16 * widen, blocks, 1)
        self.block2 = WideGroup(16 * widen, 32 * widen, blocks, 2)
        self.block3 = WideGroup(32 * widen, 64 * widen, blocks, 2)
        self.bn1 = nn.BatchNorm2d(64 * widen)
        self.fc = nn.Linear(64 * widen, num_classes)
        self._initialize()

    def _initialize(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits of a batch of normalised images."""
        out = self.block3(self.block2(self.block1(self.conv1(x))))
        out = F.relu(self.bn1(out), inplace=True)
        logits: Tensor = self.fc(F.adaptive_avg_pool2d(out, 1).flatten(1))
        return logits
