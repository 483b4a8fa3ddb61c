from . import callbacks as callbacks
from ._contract import Adapter as Adapter
from ._contract import BatchReport as BatchReport
from ._engine import RecipeAdapter as RecipeAdapter
