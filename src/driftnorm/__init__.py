"""Keep trained BatchNorm networks accurate when the data drift.

    import driftnorm
    model = driftnorm.adapt(net)  # an nn.Module; `net` itself is never changed
    logits = model(batch)         # predicts, and adapts to what it sees

Names are imported on first use, so that ``driftnorm --help`` does not wait for torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
