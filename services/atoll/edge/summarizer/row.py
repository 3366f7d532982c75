"""The row of one copy: what its edge cluster reports, as the collectors of a workspace see it. Pure.

`rows` makes one for each workspace that sends the object. Invariant: a status that the edge cluster did not report
counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from atoll.machinery.edge.associated_states import State
from atoll.machinery.edge.names import EDGE_REVISION, ObjectRef
from atoll.machinery.edge.summaries.broken import Breakage, collected_breakage, default_breakage
from atoll.machinery.edge.summaries.collectors import Cells, Collector
from atoll.machinery.edge.where import Destination
from atoll.machinery.meta.objects import Object, annotations_of

#: Kinds that are kept for all their copies.
MAX_KINDS = 1024
#: Of most copies nothing is broken or collected, and they share this.
NONE: Mapping[str, Any] = MappingProxyType({})


class Row(msgspec.Struct, frozen=True):
    """What is kept of a copy: its revision, that of our last write, and what its collectors take from it.

    `collected` is the version of the collectors, `concerned` has those that are about it; `broken` has what the test of
    each says, and "" what those of the kind say. `state` is of its associated objects.
    """

    revision: int
    written: int
    collected: int
    kind: tuple[str, str]
    is_reported: bool = False
    returned_at: str = ""
    concerned: tuple[str, ...] = ()
    broken: Mapping[str, Breakage | None] = NONE
    cells: Mapping[str, Cells | None] = NONE
    state: State | None = None


#: Called with a collector and what fails of it.
Failed = Callable[[str, Mapping[str, str]], None]


def row_of(copy: Object, destination: Destination, source: Object, state: State | None) -> Mapping[str, Any]:
    """Return the variables of expressions. `source` is the object in its workspace, as far as it is copied."""
    returned = {"status": copy["status"]} if is_reported(copy) else {}
    moment = returned_at(copy)
    return {
        "inventory": {"name": destination.sync_target_name, "cluster": destination.cluster},
        "obj": _without_status(source),
        "sent": _without_status(copy),
        "returned": returned,
        "propagation": {"lastReturnedUpdateTimestamp": moment} if moment else {},
        "associated": state.variable() if state is not None else {},
    }


def evaluated(
    ref: ObjectRef, variables: Mapping[str, Any], collectors: Mapping[str, Collector], failed: Failed
) -> tuple[dict[str, Breakage | None], dict[str, Cells | None]]:
    """Return what counts as broken, and the cells, by collector."""
    broken: dict[str, Breakage | None] = {}
    cells: dict[str, Cells | None] = {}
    for name, each in collectors.items():
        errors: dict[str, str] = {}
        if each.has_table():
            cells[name] = each.cells(variables, errors)
        if each.broken is not None:
            broken[name] = collected_breakage(each, variables, errors)
        failed(name, errors)
    if "status" in variables["returned"] and (found := default_breakage(ref, variables)) is not None:
        broken[""] = found
    return broken, cells


@lru_cache(MAX_KINDS)
def kind_of(api_version: str, kind: str) -> tuple[str, str]:
    """Return apiVersion and kind of a copy, as one tuple for all of its kind."""
    return api_version, kind


def is_reported(copy: Object) -> bool:
    """Whether an edge cluster reported the status of a copy."""
    return EDGE_REVISION in annotations_of(copy) and isinstance(copy.get("status"), dict)


def returned_at(copy: Object) -> str:
    """Return when the status of a copy was written last, by the center's clock."""
    entries = copy["metadata"].get("managedFields") or ()
    return max((each.get("time") or "" for each in entries if each.get("subresource") == "status"), default="")


def _without_status(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key != "status"}
