"""Rows as pictures: pure functions from rows to what a figure shows, and one that draws it."""

from driftnorm.plots.drawing import draw
from driftnorm.plots.figures import Figure, Series
from driftnorm.plots.views import PLOTS, find_plot

__all__ = ["PLOTS", "Figure", "Series", "draw", "find_plot"]
