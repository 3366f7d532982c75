"""StatusSummaries: what is said of one placed object, or of one set of objects that come up, at all destinations.

The summarizer writes them. Invariants: a summary stays below MAX_BYTES however many destinations there are; each of its
lists says how much it leaves out; equal input gives an equal summary, whatever the order.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from typing import Any, TypeAlias

import msgspec

from atoll.machinery.edge.associated_states import MAX_COUNTS, Count, kind_name
from atoll.machinery.edge.names import API_VERSION, REPORT_NAMESPACE, ObjectRef
from atoll.machinery.edge.placements import UpsyncSet
from atoll.machinery.edge.summaries.broken import MAX_MESSAGE, Breakage
from atoll.machinery.edge.summaries.collectors import DEFAULT_BROKEN
from atoll.machinery.edge.where import Destination
from atoll.machinery.meta.labels import label_value_errors
from atoll.machinery.meta.objects import Object, encode_json

#: All of it; tables together; broken objects. The rest is metadata, which is bounded by the sizes of names.
MAX_BYTES, TABLE_BYTES, BROKEN_BYTES = 64 * 1024, 28 * 1024, 24 * 1024
MAX_TABLES = 16
_LABEL, _HASH_SIZE = "status.kubestellar.io/", 10


#: apiVersion and kind.
Kind: TypeAlias = tuple[str, str]


class Report(msgspec.Struct, frozen=True):
    """An object that is broken at one destination. `since` is when it broke, or when it was heard of last."""

    destination: Destination
    ref: ObjectRef
    #: apiVersion and kind; None where `Findings.kind_of` says them.
    kind: Kind | None
    breakage: Breakage
    since: str = ""


class Subject(msgspec.Struct, frozen=True):
    """What a summary is about: an object by its uid, or a set, of a placement."""

    uid: str
    placement: str
    placement_uid: str
    ref: ObjectRef
    title: str

    @property
    def namespace(self) -> str:
        """The namespace of the summary."""
        return self.ref.namespace or REPORT_NAMESPACE

    @property
    def name(self) -> str:
        """The name of the summary."""
        return f"{self.uid}.{self.placement_uid}"


def set_uid(members: UpsyncSet) -> str:
    """Return what a set has in the place of an object's uid."""
    return hashlib.sha256(encode_json(members.as_object())).hexdigest()[:32]


def set_title(members: UpsyncSet) -> str:
    """Return the name of a set in a column."""
    group = f".{members.api_group}" if members.api_group else ""
    return "upsync " + ",".join(f"{each}{group}" for each in members.resources)


class Findings(msgspec.Struct):
    """All that a summary says. `due_s` is when a report that stands for long counts as broken, None for none.

    `copies` are all of which something is said, also what came up, `broken` reports of those that are. `associated` are
    numbers of associated objects at all destinations, `failing` reports of those that are broken, and `left_out` the
    number of such of which there is none.
    """

    destinations: int = 0
    copies: int = 0
    reported: int = 0
    up_to_date: int = 0
    broken: list[Report] = msgspec.field(default_factory=list)
    tables: list[Object] = msgspec.field(default_factory=list)
    max_broken: int = DEFAULT_BROKEN
    due_s: float | None = None
    associated: Counter[Count] = msgspec.field(default_factory=Counter)
    failing: list[Report] = msgspec.field(default_factory=list)
    left_out: int = 0
    kind_of: Callable[[Report], Kind] = lambda report: ("", "")


def summary(subject: Subject, found: Findings) -> Object:
    """Return the StatusSummary without its time."""
    shown = nsmallest(found.max_broken, (*found.broken, *found.failing), key=_age)
    listed = _fitting([_broken_row(each, each.kind or found.kind_of(each)) for each in shown], BROKEN_BYTES)
    numbers = sorted(found.associated.items(), key=lambda row: (-row[1], row[0]))[:MAX_COUNTS]
    body: Object = {
        "apiVersion": API_VERSION,
        "kind": "StatusSummary",
        "metadata": _metadata(subject),
        "subject": subject.title,
        "counts": {
            "destinations": found.destinations,
            "reported": found.reported,
            "upToDate": found.up_to_date,
            "broken": len(found.broken),
        },
        "results": _bounded(sorted(found.tables, key=lambda each: str(each["name"]))),
        "brokenObjects": listed,
        "brokenTruncated": len(found.broken) + len(found.failing) - len(listed) + found.left_out,
    }
    if numbers:
        body["associated"] = [_number_row(*row) for row in sorted(numbers)]
    return body


def _number_row(count: Count, number: int) -> Object:
    return {"resource": kind_name(count.kind), "phase": count.phase, "reason": count.reason, "count": number}


def _age(report: Report) -> tuple[Any, ...]:
    return report.since, report.destination, report.ref


def _broken_row(report: Report, kind: Kind) -> Object:
    breakage, destination, ref = report.breakage, report.destination, report.ref
    return {
        "cluster": destination.cluster,
        "locationName": destination.location_name,
        "syncTargetName": destination.sync_target_name,
        "apiVersion": kind[0],
        "kind": kind[1],
        **({"namespace": ref.namespace} if ref.namespace else {}),
        "name": ref.name,
        "reason": breakage.reason[:MAX_MESSAGE],
        "message": breakage.message[:MAX_MESSAGE],
        "lastUpdate": report.since,
    }


def _metadata(subject: Subject) -> Object:
    owner = {
        "apiVersion": API_VERSION,
        "kind": "EdgePlacement",
        "name": subject.placement,
        "uid": subject.placement_uid,
    }
    ref = subject.ref
    values = {
        "api-group": ref.group,
        "resource": ref.resource,
        "namespace": ref.namespace,
        "name": ref.name,
        "edge-placement": subject.placement,
    }
    return {
        "name": subject.name,
        "namespace": subject.namespace,
        "labels": {_LABEL + key: label_of(value) for key, value in values.items()},
        "ownerReferences": [{**owner, "controller": True}],
    }


def label_of(text: str) -> str:
    """Return a text as the value of a label; one that is none is cut, with a hash."""
    if not label_value_errors(text):
        return text
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in text[: 62 - _HASH_SIZE])
    return f"{kept}-{hashlib.sha256(text.encode()).hexdigest()[:_HASH_SIZE]}".lstrip("-")


def _bounded(tables: Sequence[Object]) -> list[Object]:
    """Return the first tables, each with the rows that fit into its share."""
    shown = tables[:MAX_TABLES]
    found = []
    for each in shown:
        rows = _fitting(each["rows"], TABLE_BYTES // len(shown))
        left_out = each.get("truncated", 0) + len(each["rows"]) - len(rows)
        found.append({**each, "rows": rows, **({"truncated": left_out} if left_out else {})})
    return found


def _fitting(rows: Sequence[Object], size: int) -> list[Object]:
    """Return the first rows that fit into a number of bytes."""
    found = []
    for each in rows:
        size -= len(encode_json(each)) + 1
        if size < 0:
            break
        found.append(each)
    return found


def content_of(body: Object) -> Mapping[str, Any]:
    """Return what counts of a summary: all but its time and what the server keeps in its metadata."""
    metadata = body["metadata"]
    own = {key: metadata.get(key) for key in ("labels", "ownerReferences")}
    fields = ("subject", "counts", "results", "brokenObjects", "brokenTruncated", "associated")
    return {**{key: body.get(key) for key in fields}, "metadata": own}
