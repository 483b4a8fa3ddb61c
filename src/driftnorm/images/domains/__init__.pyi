from .cache import cached_arrays as cached_arrays
from .domain_arrays import DomainArrays as DomainArrays
from .domain_arrays import evaluation_batches as evaluation_batches
from .folder import DomainSet as DomainSet
from .folder import open_domains as open_domains
from .named import open_arrays as open_arrays
