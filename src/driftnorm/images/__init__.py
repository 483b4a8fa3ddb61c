"""Images as data: your own in folders, lists, arrays and archives, and known data sets.

Most of this package does not import torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
