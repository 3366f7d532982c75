"""Rows of one type, filtered by a condition that other rows decide, or by their own content (`mapped_rows`),
by an indexed label (`labelled_rows`), or merged of all identities (`merged_rows`).

Belongs here: the filter (`row_filter`), reads through it (`row_source`), watches through it (`cursor`). A virtual
workspace sets a FilteredRows or MappedRows on its request if labels cannot select its rows, and `reads` reads that
instead of the store.

Not here: authorization (the virtual workspace), and verbs (`rest`).
"""

from __future__ import annotations

from atoll.machinery.apiserver.filtered_rows.labelled_rows import LabelledRows
from atoll.machinery.apiserver.filtered_rows.mapped_rows import MappedRows
from atoll.machinery.apiserver.filtered_rows.merged_rows import EVERY_IDENTITY, MergedRows
from atoll.machinery.apiserver.filtered_rows.row_filter import Choose, Log, RowFilter, Rows, RowSource
from atoll.machinery.apiserver.filtered_rows.row_source import FilteredRows

__all__ = [
    "EVERY_IDENTITY",
    "Choose",
    "FilteredRows",
    "LabelledRows",
    "Log",
    "MappedRows",
    "MergedRows",
    "RowFilter",
    "RowSource",
    "Rows",
]
