"""AssociatedStates: how the associated objects of one placed object fare at an edge cluster, as one object.

A syncer writes them into its mailbox, the summarizer reads them. Pure. Invariants: equal objects give an equal state,
in whatever order they came; its lists are bounded and say what they leave out; its name follows from its subject, so a
placed object has one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from atoll.machinery.edge.names import API_VERSION, GROUP, ObjectRef
from atoll.machinery.meta.objects import Object

STATES = (GROUP, "associatedstates")
#: Rows of counts and of broken objects, characters of a phase.
MAX_COUNTS, MAX_BROKEN, MAX_PHASE = 50, 100, 63
_CONTENT = ("subject", "total", "broken", "counts", "brokenObjects", "brokenTruncated")
#: Where the states of objects without a namespace are.
_NAMESPACE = "default"


class Observed(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one associated object. With a `reason` it is broken, once that stood for `after_s` seconds.

    `at_s` is since when, by a clock that only runs forward.
    """

    ref: ObjectRef
    uid: str
    phase: str = ""
    reason: str = ""
    message: str = ""
    after_s: float = 0.0
    at_s: float = 0.0
    fields: Mapping[str, str] | None = None


class Count(msgspec.Struct, frozen=True, order=True):
    """How many objects of a kind are in a phase, broken for a reason or, without one, not."""

    kind: tuple[str, str]
    phase: str
    reason: str


class Broken(msgspec.Struct, frozen=True):
    """One broken object of a state."""

    ref: ObjectRef
    kind: tuple[str, str]
    reason: str
    message: str
    since: str


class State(msgspec.Struct, frozen=True):
    """What an AssociatedState says. `left_out` broken objects are not in `broken`."""

    revision: int
    counts: Mapping[Count, int]
    broken: tuple[Broken, ...]
    left_out: int

    def variable(self) -> Object:
        """Return it as expressions see it: by kind, as `pods` or `replicasets.apps`, numbers by phase and reason."""
        found: Object = {}
        for count, number in self.counts.items():
            row = found.setdefault(kind_name(count.kind), {"total": 0, "broken": 0, "phases": {}, "reasons": {}})
            row["total"] += number
            row["phases"][count.phase] = row["phases"].get(count.phase, 0) + number
            if count.reason:
                row["broken"] += number
                row["reasons"][count.reason] = row["reasons"].get(count.reason, 0) + number
        return found


def kind_name(kind: tuple[str, str]) -> str:
    """Return a kind as `resource.group`, one of the core group as its resource."""
    group, resource = kind
    return f"{resource}.{group}" if group else resource


def state_key(subject: ObjectRef) -> tuple[str, str]:
    """Return namespace and name of the state of a placed object."""
    text = "/".join((subject.group, subject.resource, subject.namespace, subject.name))
    return subject.namespace or _NAMESPACE, f"{subject.resource}.{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def subject_of(state: Object) -> ObjectRef:
    """Return the placed object that a state is about."""
    found = state.get("subject") or {}
    return ObjectRef(*(str(found.get(field) or "") for field in ("group", "resource", "namespace", "name")))


def associated_state(
    subject: ObjectRef,
    members: Iterable[Observed],
    due: Mapping[ObjectRef, str],
    kinds: Mapping[tuple[str, str], tuple[str, str]],
    limits: Mapping[tuple[str, str], int],
) -> Object:
    """Return the state of a subject.

    `due` has since when objects are broken whose time has come; `kinds` apiVersion and kind by group and resource;
    `limits` how many broken objects of each are listed.
    """
    counts: Counter[tuple[str, str, str, str]] = Counter()
    broken: list[Observed] = []
    total = 0
    for each in members:
        total += 1
        counts[each.ref.group, each.ref.resource, each.phase, each.reason if each.ref in due else ""] += 1
        if each.ref in due:
            broken.append(each)
    broken.sort(key=lambda each: (due[each.ref], each.ref))
    listed = _listed(broken, limits)
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:MAX_COUNTS]
    namespace, name = state_key(subject)
    return {
        "apiVersion": API_VERSION,
        "kind": "AssociatedState",
        "metadata": {"name": name, "namespace": namespace},
        "subject": {
            "group": subject.group,
            "resource": subject.resource,
            "namespace": subject.namespace,
            "name": subject.name,
        },
        "total": total,
        "broken": len(broken),
        "counts": [
            {"group": group, "resource": resource, "phase": phase, "reason": reason, "count": number}
            for (group, resource, phase, reason), number in sorted(rows)
        ],
        "brokenObjects": [_row(each, due[each.ref], kinds[each.ref.kind]) for each in listed],
        "brokenTruncated": len(broken) - len(listed),
    }


def _listed(broken: Iterable[Observed], limits: Mapping[tuple[str, str], int]) -> list[Observed]:
    """Return the first of each kind, as many as its limit."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for each in broken:
        seen[each.ref.kind] += 1
        if seen[each.ref.kind] <= limits[each.ref.kind]:
            found.append(each)
    return found[:MAX_BROKEN]


def _row(each: Observed, since: str, kind: tuple[str, str]) -> Object:
    ref = each.ref
    return {
        "group": ref.group,
        "resource": ref.resource,
        "apiVersion": kind[0],
        "kind": kind[1],
        **({"namespace": ref.namespace} if ref.namespace else {}),
        "name": ref.name,
        "reason": each.reason,
        "message": each.message,
        "since": since,
        **({"fields": dict(each.fields)} if each.fields else {}),
    }


def content_of(state: Object) -> Object:
    """Return what counts of a state."""
    return {field: state.get(field) for field in _CONTENT}


def since_of(state: Object) -> dict[ObjectRef, str]:
    """Return since when the objects that a state lists are broken."""
    return {_ref(each): str(each.get("since") or "") for each in state.get("brokenObjects") or ()}


def decoded(state: Object) -> State:
    """Decode a state, whatever a syncer wrote that the schema lets pass."""
    counts = {
        Count(
            (str(each.get("group") or ""), str(each["resource"])),
            str(each.get("phase") or ""),
            str(each.get("reason") or ""),
        ): int(each["count"])
        for each in state.get("counts") or ()
    }
    broken = tuple(
        Broken(
            _ref(each),
            (str(each.get("apiVersion") or ""), str(each.get("kind") or "")),
            str(each.get("reason") or ""),
            _message(each),
            str(each.get("since") or ""),
        )
        for each in state.get("brokenObjects") or ()
    )
    revision = int(state["metadata"]["resourceVersion"])
    return State(revision, counts, broken, int(state.get("brokenTruncated") or 0))


def _message(row: Object) -> str:
    """Return the message of a row with its fields."""
    fields = ", ".join(f"{name}={value}" for name, value in sorted((row.get("fields") or {}).items()))
    message = str(row.get("message") or "")
    return f"{message} ({fields})" if fields else message


def _ref(row: Object) -> ObjectRef:
    return ObjectRef(*(str(row.get(field) or "") for field in ("group", "resource", "namespace", "name")))
