"""Adapt a network to images of the user's own: one CSV file of predictions, resumable."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
