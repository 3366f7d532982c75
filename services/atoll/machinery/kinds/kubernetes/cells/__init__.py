"""The rows of kube-apiserver's tables: the cells of a kind's columns, computed from an object.

`cells_of` gives the function for `Kind.cells`; the modules beside it have the accessors that `cells.json` names, by
subject. They take stored objects, so that parts of another type than Kubernetes' are empty. Invariant: none raises.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.machinery.kinds.checks import text
from atoll.machinery.kinds.kubernetes.cells import network, nodes, pods, storage, workloads
from atoll.machinery.kinds.kubernetes.cells.common import COMMON, Accessor
from atoll.machinery.kinds.kubernetes.tables import Cell, Row, cell
from atoll.machinery.meta.jsonpath import first
from atoll.machinery.meta.objects import Object

_ACCESSORS: dict[str, Accessor] = {
    **COMMON,
    **network.ACCESSORS,
    **nodes.ACCESSORS,
    **pods.ACCESSORS,
    **storage.ACCESSORS,
    **workloads.ACCESSORS,
}

_FLAGS = {"true": True, "false": False}
_TEXTS = ("", "<unset>", "N/A")
#: The end of the path of a quantity, a text also where it is 0.
_QUANTITY = ".storage"


def cells_of(row: Row) -> Callable[[Object, float], list[object]]:
    """Return the function that computes a row of the table of a kind, in the order of its columns."""
    accessors = [_accessor(cell(row.kind, column.name)) for column in row.columns]
    return lambda obj, now_s: [accessor(obj, now_s) for accessor in accessors]


def _accessor(found: Cell) -> Accessor:
    if found.accessor:
        return _ACCESSORS[found.accessor]
    if found.path == ".metadata.name":
        return lambda obj, now_s: text(obj, "metadata", "name")
    absent = _absent(found)
    # A number or a flag is printed where its absence is a text.
    printed = found.absent in _TEXTS
    return lambda obj, now_s: _formatted(first(found.path, obj), absent, printed=printed)


def _absent(found: Cell) -> object:
    if found.absent in _FLAGS:
        return _FLAGS[found.absent]
    is_count = found.absent.isdigit() and not found.path.endswith(_QUANTITY)
    return int(found.absent) if is_count else found.absent


def _formatted(value: object, absent: object, *, printed: bool) -> object:
    if value is None or value == "":
        return absent
    if isinstance(value, int):
        return str(value) if printed else value
    return value if isinstance(value, str) else absent
