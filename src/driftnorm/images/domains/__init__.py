"""Pictures of several domains, in files or in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports

if TYPE_CHECKING:
    from driftnorm.images.domains.cache import cached_arrays as cached_arrays
    from driftnorm.images.domains.domain_arrays import DomainArrays as DomainArrays
    from driftnorm.images.domains.domain_arrays import evaluation_batches as evaluation_batches
    from driftnorm.images.domains.folder import DomainSet as DomainSet
    from driftnorm.images.domains.folder import open_domains as open_domains
    from driftnorm.images.domains.named import open_arrays as open_arrays

_HOMES = {
    "DomainArrays": "domain_arrays",
    "DomainSet": "folder",
    "cached_arrays": "cache",
    "evaluation_batches": "domain_arrays",
    "open_arrays": "named",
    "open_domains": "folder",
}
__all__ = [*_HOMES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
