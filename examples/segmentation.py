"""Dense prediction: a network that labels every pixel, so the entropy is one per pixel.

Run it with ``python examples/segmentation.py``. Nothing differs from a classifier: logits are
(N, classes, H, W), and every pixel is a prediction whose entropy counts.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import driftnorm


def scene(images: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Grey pictures with a smooth bright square and a striped one, and each pixel's class."""
    pixels = 0.2 + 0.05 * torch.randn(images, 1, 24, 24, generator=generator)
    labels = torch.zeros(images, 24, 24, dtype=torch.long)
    for picture, label in zip(pixels, labels, strict=True):
        for kind, left in ((1, 0), (2, 12)):
            x, y = torch.randint(0, 4, (2,), generator=generator).tolist()
            part = (slice(y, y + 14), slice(left + x, left + x + 8))
            label[part] = kind
            picture[0][part] += 0.5 if kind == 1 else 0.5 * (torch.arange(8) % 2)
    return pixels, labels


def block(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


def pixel_accuracy(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> float:
    with torch.no_grad():
        right = [(model(x).argmax(1) == y).float().mean() for x, y in batches]
    return float(torch.stack(right).mean())


torch.set_num_threads(1)
torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
network = nn.Sequential(*block(1, 8), *block(8, 16), nn.Conv2d(16, 3, 1))
optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
for _ in range(60):
    images, labels = scene(16, generator)
    optimizer.zero_grad()
    torch.autograd.backward(F.cross_entropy(network(images), labels))
    optimizer.step()
network.eval()

clean = [scene(16, generator) for _ in range(6)]
dim = [(0.3 * x + 0.5, y) for x, y in clean]  # another lamp: less contrast, more light
model = driftnorm.adapt(network, "gprebn")
print(f"source on clean pictures {100 * pixel_accuracy(network, clean):.1f} %")
print(f"source on dim ones       {100 * pixel_accuracy(network, dim):.1f} %")
print(f"gprebn on dim ones       {100 * pixel_accuracy(model, dim):.1f} %")
assert model.last is not None
print(f"answers {tuple(model(dim[0][0]).shape)}, {model.last.status}, loss {model.last.loss:.3f}")
