"""Rows of a store as a view shows them: some of one type's, chosen by what other rows say.

Here belong: the choice (`choice`), reading through it (`lens`), following it (`cursor`). A virtual workspace leaves a
FilteredRows with its request where labels cannot select for it, and `reads` reads through that in place of the store.

Not here: who may look (the view), and what is done with rows (`rest`).
"""

from __future__ import annotations

from atoll.machinery.apiserver.filtered_rows.row_filter import Choose, RowFilter, Rows, RowSource
from atoll.machinery.apiserver.filtered_rows.row_source import FilteredRows

__all__ = ["Choose", "FilteredRows", "RowFilter", "RowSource", "Rows"]
