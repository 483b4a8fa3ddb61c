"""Run a recipe on a network: the contract, the adapter of recipes, and callbacks for logging."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
