"""ResNet-20, 32, 44 and 56 for 32x32 images.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2: widths 16, 32,
64, (depth - 2) / 6 basic blocks per stage. Where the channels change, the shortcut is a 1x1
convolution with BN named `downsample`, as in the released weights of
chenyaofo/pytorch-cifar-models (the paper pads with zeros instead).
"""

from __future__ import annotations

from torch import Tensor, nn

from driftnorm.models.resnet import BasicBlock, conv3x3, initialize, stage


class CifarResNet(nn.Module):
    """The CIFAR ResNet: 3x3 stem, three stages, mean, linear.

    Args:
        depth: Layers with weights on the longest path: 6 n + 2.
        num_classes: Number of outputs.
    """

    def __init__(self, depth: int, num_classes: int = 10) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = conv3x3(3, 16)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = stage(BasicBlock, 16, 16, blocks, 1)
        self.layer2 = stage(BasicBlock, 16, 32, blocks, 2)
        self.layer3 = stage(BasicBlock, 32, 64, blocks, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, num_classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits of a batch of normalised images."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.layer3(self.layer2(self.layer1(out)))
        logits: Tensor = self.fc(self.avgpool(out).flatten(1))
        return logits
