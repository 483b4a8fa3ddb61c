"""Text in the cells of a CSV file that no spreadsheet takes for a formula."""

from __future__ import annotations

_MARK = "'"
# What a spreadsheet runs begins with one of these, also in their full-width forms.
_FIRST = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def safe_cell(text: str) -> str:
    """The text, with an apostrophe before it if a spreadsheet might run it.

    >>> safe_cell("=1+1.png"), safe_cell("a=b.png")
    ("'=1+1.png", 'a=b.png')
    """
    # Also before apostrophes of its own, so that the mark can be told from them.
    return _MARK + text if text.lstrip(_MARK).startswith(_FIRST) else text


def text_of_cell(cell: str) -> str:
    """The inverse of `safe_cell`.

    >>> text_of_cell("'=1+1.png"), text_of_cell("'quoted'.png")
    ('=1+1.png', "'quoted'.png")
    """
    marked = cell.startswith(_MARK) and cell.lstrip(_MARK).startswith(_FIRST)
    return cell[1:] if marked else cell
