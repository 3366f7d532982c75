"""Detection of a data file that was cut off, before LMDB maps it: LMDB ends the process by SIGBUS at a page behind the
end of the file.

`opening` calls this before each `lmdb.open`. The newest meta page says how many pages the file has. The file of a sound
store may be shorter: LMDB never writes pages that it allocates and frees in one transaction. So the missing pages are
looked up among the free ones. Invariant: the file is read with `pread` alone, and never changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct, error

import msgspec

_MAGIC, _VERSION = 0xBEEFC0DE, 1
#: Offsets in a meta page, behind the page header of 16 bytes (`MDB_meta` of LMDB 0.9, 64 bits).
_IDENTITY, _PAGE_SIZE, _FREE_ROOT, _LAST_PAGE = (16, Struct("<II")), (40, Struct("<I")), (80, Struct("<Q")), 136
_LAST_AND_TXN = Struct("<QQ")
_PAGE = Struct("<QHHHH")
_NODE = Struct("<HHHH")
_NUMBER = Struct("<Q")
_BRANCH, _LEAF, _BIG = 0x01, 0x02, 0x01
_NO_PAGE = (1 << 64) - 1
_META_BYTES = 152
_MIN_PAGE, _MAX_PAGE = 256, 1 << 16
#: Reads of a file that its writer changes meanwhile; a store that is written was checked when its writer opened it.
_ATTEMPTS = 3


class TruncatedFile(Exception):
    """The data file ends before pages that hold data. It was not touched."""


class _Meta(msgspec.Struct, frozen=True):
    txn: int
    last_page: int
    page_bytes: int
    free_root: int


def require_whole(file: Path) -> None:
    """Raise TruncatedFile if the file lacks pages in use. Pass what is no LMDB file: LMDB refuses that itself."""
    with file.open("rb") as opened:
        fd = opened.fileno()
        for _ in range(_ATTEMPTS):
            meta = _newest_meta(fd)
            if meta is None:
                return
            size_bytes, needed_bytes = os.fstat(fd).st_size, (meta.last_page + 1) * meta.page_bytes
            if size_bytes >= needed_bytes or (
                size_bytes >= 2 * meta.page_bytes and _is_rest_free(fd, meta, size_bytes)
            ):
                return
            if _newest_meta(fd) == meta:
                raise TruncatedFile(f"{file} is cut off at {size_bytes} bytes: restore the store from a backup")


def _newest_meta(fd: int) -> _Meta | None:
    first = _meta(os.pread(fd, _META_BYTES, 0))
    second = None if first is None else _meta(os.pread(fd, _META_BYTES, first.page_bytes))
    found = [meta for meta in (first, second) if meta is not None]
    return max(found, key=lambda meta: meta.txn, default=None)


def _meta(page: bytes) -> _Meta | None:
    """Return the facts of a meta page; None if it is none."""
    if len(page) < _META_BYTES or _read(_IDENTITY, page) != (_MAGIC, _VERSION):
        return None
    (page_bytes,), (free_root,) = _read(_PAGE_SIZE, page), _read(_FREE_ROOT, page)
    last_page, txn = _LAST_AND_TXN.unpack_from(page, _LAST_PAGE)
    return _Meta(txn, last_page, page_bytes, free_root) if _MIN_PAGE <= page_bytes <= _MAX_PAGE else None


def _read(field: tuple[int, Struct], page: bytes) -> tuple[int, ...]:
    offset, form = field
    return form.unpack_from(page, offset)


def _is_rest_free(fd: int, meta: _Meta, size_bytes: int) -> bool:
    """Return whether no page behind the end of the file holds data."""
    first_missing = size_bytes // meta.page_bytes
    try:
        free = {page for page in _free_pages(fd, meta) if page >= first_missing}
    except (error, IndexError):
        return False
    return len(free) >= meta.last_page + 1 - first_missing


def _free_pages(fd: int, meta: _Meta) -> Iterator[int]:
    """Yield the numbers of free pages. Raise struct.error or IndexError where the list itself is cut off or damaged."""
    if meta.free_root == _NO_PAGE:
        return
    waiting, seen = [meta.free_root], 0
    while waiting:
        number, seen = waiting.pop(), seen + 1
        page = os.pread(fd, meta.page_bytes, number * meta.page_bytes)
        _, _, flags, lower, _ = _PAGE.unpack_from(page)
        if seen > meta.last_page or not flags & (_BRANCH | _LEAF):
            raise IndexError(number)
        for slot in range(_PAGE.size, lower, 2):
            at = int.from_bytes(page[slot : slot + 2], "little")
            low, high, kind, key_bytes = _NODE.unpack_from(page, at)
            if flags & _BRANCH:
                waiting.append(low | high << 16 | kind << 32)
            else:
                data = page[at + _NODE.size + key_bytes :][: low | high << 16]
                yield from _numbers(_overflow(fd, meta, data, low | high << 16) if kind & _BIG else data)


def _overflow(fd: int, meta: _Meta, pointer: bytes, size_bytes: int) -> bytes:
    """Return data that has pages of its own."""
    (number,) = _NUMBER.unpack_from(pointer)
    return os.pread(fd, size_bytes, number * meta.page_bytes + _PAGE.size)


def _numbers(data: bytes) -> Iterator[int]:
    """Yield the page numbers of one list: their count, then each."""
    (count,) = _NUMBER.unpack_from(data)
    for index in range(1, count + 1):
        yield _NUMBER.unpack_from(data, index * _NUMBER.size)[0]
