"""Types of LMDB handles as this package uses them: transactions and cursors that return bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import lmdb

    Txn: TypeAlias = lmdb.Transaction[bytes]
    LmdbRows: TypeAlias = lmdb.Cursor[bytes]
    Database: TypeAlias = lmdb._Database
