from .adapted_stream import Began as Began
from .adapted_stream import Note as Note
from .adapted_stream import Outcome as Outcome
from .adapted_stream import Plan as Plan
from .adapted_stream import Snapshot as Snapshot
from .adapted_stream import adapt_stream as adapt_stream
