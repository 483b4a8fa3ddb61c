"""What people read: rows to tables, figures and pages. Importing this never imports torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
