"""Events in the form of events.k8s.io, a view of the objects that `core.events` stores.

Both groups read and write the same objects; `to_stored` and `from_stored` rename fields without loss. Writes through
this group are checked more strictly, in the core form, and errors carry core field names.
"""

from __future__ import annotations

from atoll.machinery.kinds.checks import immutable, number, text
from atoll.machinery.kinds.core.events import COLUMNS, EVENTS, cells, event_errors, reference_labels, source_label
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.native import builtin
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.meta.times import parse_time
from atoll.machinery.schema.fielderrors import invalid

GROUP = "events.k8s.io"

_CORE_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_OWN_NAMES = {core: own for own, core in _CORE_NAMES.items()}
#: Immutable fields in this group; eventTime is compared to the microsecond.
_IMMUTABLE = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)


def to_stored(obj: Object) -> Object:
    """Return the same event in the core form. Shares its parts with obj."""
    return {**{_CORE_NAMES.get(name, name): value for name, value in obj.items()}, "apiVersion": "v1"}


def from_stored(obj: Object) -> Object:
    """Return the same event in this group's form. Shares its parts with obj."""
    return {**{_OWN_NAMES.get(name, name): value for name, value in obj.items()}, "apiVersion": f"{GROUP}/v1"}


def _validate(obj: Object) -> list[FieldError]:
    event = to_stored(obj)
    errors = [*event_errors(event, "reportingController"), *_series_errors(event)]
    if text(event, "type") not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {text(event, 'type')}"))
    unset = {name: event.get(name) for name in ("firstTimestamp", "lastTimestamp", "count")}
    unset["source"] = text(event, "source", "component") or text(event, "source", "host")
    return errors + [invalid(name, "", "needs to be unset") for name, value in unset.items() if value]


def _series_errors(event: Object) -> list[FieldError]:
    if not isinstance(event.get("series"), dict):
        return []
    if (number(event, "series", "count") or 0) < 2:
        return [invalid("series.count", "", "should be at least 2")]
    return []


def _validate_update(obj: Object, old: Object) -> list[FieldError]:
    event, before = to_stored(obj), to_stored(old)
    errors = event_errors(event, "reportingController")
    if event.get("series") != before.get("series"):
        errors += _series_errors(event)
    for name in _IMMUTABLE:
        field = "reportingController" if name == "reportingComponent" else name
        errors += immutable(field, event.get(name), before.get(name))
    if _microseconds(event) != _microseconds(before):
        errors += immutable("eventTime", event.get("eventTime"), before.get("eventTime"))
    return errors


def _microseconds(event: Object) -> int | None:
    moment = parse_time(text(event, "eventTime"))
    return None if moment is None else round(moment * 1_000_000)


EVENTS_V1 = Kind(
    **builtin(GROUP, "Event", "events"),
    stored_as=(EVENTS.group, EVENTS.plural),
    short_names=EVENTS.short_names,
    update_creates=True,
    unconditional_update=True,
    columns=COLUMNS,
    cells=lambda obj, now_s: cells(to_stored(obj), now_s),
    field_labels={
        **reference_labels("regarding"),
        "reason": lambda obj: text(obj, "reason"),
        "reportingController": lambda obj: text(obj, "reportingController"),
        "source": lambda obj: source_label(to_stored(obj)),
        "type": lambda obj: text(obj, "type"),
    },
    validate=_validate,
    validate_update=_validate_update,
    to_stored=to_stored,
    from_stored=from_stored,
)
