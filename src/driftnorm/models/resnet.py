"""ResNet-18 and ResNet-50 for ImageNet, and their anti-aliased ("MaxBlur-pool") relative.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016. State-dict names are those of
torchvision and timm: `conv1`, `bn1`, `layer{1..4}.{i}.{conv1,bn1,...,downsample.{0,1}}`, `fc`.

Two places are in use for the stride of a bottleneck, and a file does not tell which one it was
trained with: the 3x3 convolution (`stride_in="conv2"`, called v1.5; torchvision, timm) or the first
1x1 convolution (`stride_in="conv1"`, called v1; the paper, Caffe, Keras).

The anti-aliased network is that of R. Zhang, "Making Convolutional Networks Shift-Invariant Again",
ICML 2019. Every stride but that of the stem's convolution is taken out of the layer that had it and
given to a fixed binomial low-pass filter (`BlurPool`):

* max-pool: 2x2 dense max-pool, then blur with stride 2 (`maxpool.1.filt`);
* bottleneck: the strided 3x3 becomes dense, and a blur with stride 2 stands between its ReLU and
  the last 1x1 (`conv3.0.filt`, `conv3.1.weight` in the first block of layer2, layer3, layer4);
* shortcut: blur with stride 2, then the 1x1 and its BN (`downsample.{0.filt,1.weight,2.*}`).

The names were compared with those that the author's official code gives its networks, and are
equal. The released files (`resnet50_lpf{2,3,4,5}`, nested under `state_dict`) carry the filters as
buffers named `filt`; the filter's size is read off them when such a file is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm._internal.arguments import check_choice, check_whole

# (channels in, width, stride) -> residual block
BlockMaker = Callable[[int, int, int], nn.Module]

STRIDE_PLACES = ("conv1", "conv2")


class BlurPool(nn.Module):
    """Blurs each channel with a binomial filter, then keeps every `stride`-th pixel.

    Args:
        channels: Number of channels.
        filter_size: Taps along each axis, 1 to 7; 1 only subsamples, 3 is [1, 2, 1] / 4.
        stride: Step between kept pixels.
    """

    filt: Tensor

    def __init__(self, channels: int, filter_size: int, stride: int = 2) -> None:
        super().__init__()
        check_whole("filter_size", filter_size, 1, 7)
        last = filter_size - 1
        taps = torch.tensor([float(math.comb(last, k)) for k in range(filter_size)])
        kernel = torch.outer(taps, taps) / taps.sum() ** 2
        self.register_buffer("filt", kernel.repeat(channels, 1, 1, 1))
        before, after = last // 2, last - last // 2
        self.padding = (before, after, before, after)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Returns the blurred and subsampled feature map."""
        padded = F.pad(x, self.padding, mode="reflect")
        return F.conv2d(padded, self.filt, stride=self.stride, groups=self.filt.shape[0])


def conv3x3(channels_in: int, channels_out: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size at stride 1, without bias."""
    return nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)


def conv1x1(channels_in: int, channels_out: int, stride: int = 1) -> nn.Conv2d:
    """A 1x1 convolution without bias."""
    return nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)


def shortcut(
    channels_in: int, channels_out: int, stride: int, filter_size: int | None = None
) -> nn.Sequential | None:
    """The projection beside a block, or None where the identity fits."""
    if stride == 1 and channels_in == channels_out:
        return None
    norm = nn.BatchNorm2d(channels_out)
    if stride == 1 or filter_size is None:
        return nn.Sequential(conv1x1(channels_in, channels_out, stride), norm)
    blur = BlurPool(channels_in, filter_size, stride)
    return nn.Sequential(blur, conv1x1(channels_in, channels_out), norm)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions; the stride is in the first."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(channels_in, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(channels_in, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the block's output."""
        beside = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        result: Tensor = self.relu(out + beside)
        return result


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions, the last four times as wide as the others.

    Args:
        channels_in: Channels of the input.
        width: Channels of the two inner feature maps.
        stride: Stride of the block.
        stride_in: "conv2" or "conv1": the convolution that takes the stride.
        filter_size: Give the stride to a blur of this size before the last convolution instead.
    """

    expansion = 4

    def __init__(
        self,
        channels_in: int,
        width: int,
        stride: int,
        *,
        stride_in: str = "conv2",
        filter_size: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("stride_in", stride_in, STRIDE_PLACES)
        dense = filter_size is not None
        channels_out = width * self.expansion
        self.conv1 = conv1x1(channels_in, width, 1 if dense or stride_in != "conv1" else stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width, 1 if dense or stride_in != "conv2" else stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3: nn.Module = conv1x1(width, channels_out)
        if filter_size is not None and stride > 1:
            self.conv3 = nn.Sequential(BlurPool(width, filter_size, stride), self.conv3)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(channels_in, channels_out, stride, filter_size)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the block's output."""
        beside = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        result: Tensor = self.relu(out + beside)
        return result


def stage(
    make_block: BlockMaker,
    channels_in: int,
    width: int,
    depth: int,
    stride: int,
    expansion: int = 1,
) -> nn.Sequential:
    """`depth` residual blocks of one width; the first takes the stride and the new channels."""
    first = make_block(channels_in, width, stride)
    rest = [make_block(width * expansion, width, 1) for _ in range(depth - 1)]
    return nn.Sequential(first, *rest)


def initialize(network: nn.Module) -> None:
    """He initialisation of the convolutions; BN starts as 1 and 0 anyway."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class ResNet(nn.Module):
    """The ImageNet ResNet: 7x7 stem, max-pool, four stages, mean, linear.

    Args:
        make_block: Builds one residual block.
        expansion: Channels out of a block per unit of width.
        depths: Blocks in each of the four stages.
        num_classes: Number of outputs.
        filter_size: Size of the blur of an anti-aliased network's max-pool, or None.
    """

    def __init__(
        self,
        make_block: BlockMaker,
        expansion: int,
        depths: Sequence[int],
        num_classes: int,
        filter_size: int | None = None,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool: nn.Module = nn.MaxPool2d(3, stride=2, padding=1)
        if filter_size is not None:
            self.maxpool = nn.Sequential(nn.MaxPool2d(2, stride=1), BlurPool(64, filter_size))
        build_stage = partial(stage, make_block, expansion=expansion)
        self.layer1 = build_stage(64, 64, depths[0], 1)
        self.layer2 = build_stage(64 * expansion, 128, depths[1], 2)
        self.layer3 = build_stage(128 * expansion, 256, depths[2], 2)
        self.layer4 = build_stage(256 * expansion, 512, depths[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * expansion, num_classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits of a batch of normalised images."""
        out = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        out = self.layer4(self.layer3(self.layer2(self.layer1(out))))
        logits: Tensor = self.fc(self.avgpool(out).flatten(1))
        return logits


def resnet18(num_classes: int = 1000) -> ResNet:
    """ResNet-18; its basic blocks have one place for the stride only."""
    return ResNet(BasicBlock, 1, (2, 2, 2, 2), num_classes)


def resnet50(num_classes: int = 1000, stride_in: str = "conv2") -> ResNet:
    """ResNet-50 with the stride in the 3x3 ("conv2", v1.5) or the first 1x1 ("conv1", v1)."""
    block = partial(Bottleneck, stride_in=stride_in)
    return ResNet(block, Bottleneck.expansion, (3, 4, 6, 3), num_classes)


def resnet50_maxblur(num_classes: int = 1000, filter_size: int = 4) -> ResNet:
    """Zhang's anti-aliased ResNet-50 with a binomial filter of `filter_size` taps."""
    block = partial(Bottleneck, filter_size=filter_size)
    return ResNet(block, Bottleneck.expansion, (3, 4, 6, 3), num_classes, filter_size)
