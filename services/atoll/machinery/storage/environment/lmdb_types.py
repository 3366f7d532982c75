"""Types of LMDB handles as this package uses them: transactions and cursors that give bytes.

Every module of the package that touches LMDB imports these names; nothing else is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import lmdb

    Txn: TypeAlias = lmdb.Transaction[bytes]
    LmdbRows: TypeAlias = lmdb.Cursor[bytes]
    Database: TypeAlias = lmdb._Database
