"""Rows of one type, filtered by a condition that other rows decide.

Belongs here: the filter (`row_filter`), reads through it (`row_source`), watches through it (`cursor`). A virtual
workspace sets a FilteredRows on its request if labels cannot select its rows, and `reads` reads that instead of the
store.

Not here: authorization (the virtual workspace), and verbs (`rest`).
"""

from __future__ import annotations

from atoll.machinery.apiserver.filtered_rows.row_filter import Choose, RowFilter, Rows, RowSource
from atoll.machinery.apiserver.filtered_rows.row_source import FilteredRows

__all__ = ["Choose", "FilteredRows", "RowFilter", "RowSource", "Rows"]
