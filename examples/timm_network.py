"""Two lines around a timm network. Run it with ``python examples/timm_network.py``.

The weights are random, so that nothing is downloaded: in your code, take ``pretrained=True``.
"""

import sys

import torch

import driftnorm
from driftnorm.models import resolve

torch.manual_seed(0)
try:
    # As `timm.create_model("resnet18", num_classes=10)`, and what input the network wants. It also
    # works where torchvision's CUDA wheel beside a CPU torch would keep timm from being imported.
    network, preprocessing = resolve("timm:resnet18", num_classes=10)
except ImportError as error:
    sys.exit(f"skipped: {error}")
network.eval()
assert preprocessing is not None
print(f"input: {preprocessing.size} pixels, mean {preprocessing.mean}")

model = driftnorm.adapt(network, "gprebn")
batches = [1.5 * torch.randn(16, 3, 64, 64) + 0.5 for _ in range(3)]
for batch in batches:
    logits = model(batch)

print(model)
assert model.last is not None
print(f"answers {tuple(logits.shape)}, entropy {model.last.entropy:.2f} of its maximum")
with torch.no_grad():
    difference = (model.bake()(batch) - model.freeze()(batch)).abs().max()
print(f"the baked network answers as the frozen adapter: {bool(difference < 1e-3)}")
