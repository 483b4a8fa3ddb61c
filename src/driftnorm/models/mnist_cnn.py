"""DomainBed's network for 28x28 images, and a twin with BatchNorm.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021. Four 3x3
convolutions with 64, 128 (stride 2), 128, 128 channels, each followed by ReLU and **then** the
normalisation, and the mean over positions: 128 features. DomainBed normalises with GroupNorm(8)
under the names `bn0` to `bn3`, so methods that adapt BatchNorm find nothing in it; the twin differs
in that layer alone.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "group": lambda channels: nn.GroupNorm(8, channels),
    "batch": nn.BatchNorm2d,
}


class MnistNet(nn.Module):
    """The convolutional network of DomainBed's MNIST sets with its linear classifier.

    Args:
        norm: "group" for DomainBed's own network, "batch" for the twin.
        num_classes: Number of outputs.
        in_channels: 1 for RotatedMNIST, 2 for ColoredMNIST.
    """

    def __init__(self, norm: str, num_classes: int = 10, in_channels: int = 1) -> None:
        super().__init__()
        make_norm = NORMS[norm]
        self.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1)
        self.conv2 = nn.Conv2d(64, 128, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(128, 128, 3, padding=1)
        self.conv4 = nn.Conv2d(128, 128, 3, padding=1)
        self.bn0 = make_norm(64)
        self.bn1 = make_norm(128)
        self.bn2 = make_norm(128)
        self.bn3 = make_norm(128)
        self.relu = nn.ReLU(inplace=True)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits of a batch of images."""
        out = self.bn0(self.relu(self.conv1(x)))
        out = self.bn1(self.relu(self.conv2(out)))
        out = self.bn2(self.relu(self.conv3(out)))
        out = self.bn3(self.relu(self.conv4(out)))
        logits: Tensor = self.fc(self.avgpool(out).flatten(1))
        return logits
