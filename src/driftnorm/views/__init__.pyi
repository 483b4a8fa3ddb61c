from .figure import Figure as Figure
from .figure import Series as Series
from .render.matplotlib import draw as draw
from .report.page import make_report as make_report
from .stream_figures import timeline_figure as timeline_figure
from .table import Column as Column
from .table import Table as Table
