"""Events of the core group, which is also the stored form of the events of both groups.

`kinds.events` serves the same objects as events.k8s.io. Old clients set counts and timestamps, new ones set
`eventTime`; only the latter are checked strictly, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.machinery.kinds.checks import ensure, invalid_values, mapping, number, text
from atoll.machinery.kinds.kind import Column, Kind
from atoll.machinery.kinds.native import builtin
from atoll.machinery.meta.labels import dns_subdomain_errors, label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.meta.times import age
from atoll.machinery.schema.fielderrors import invalid, required

_TEXT_SIZE, _MESSAGE_SIZE = 128, 1024
_DEFAULT_NAMESPACE, _SYSTEM_NAMESPACE = "default", "kube-system"


def _prepare_create(obj: Object) -> None:
    ensure(obj, "involvedObject")


def _prepare_update(obj: Object, old: Object) -> None:
    ensure(obj, "involvedObject")


def validate_core(obj: Object) -> list[FieldError]:
    """Check an event of either group, in the core form."""
    return event_errors(obj, "reportingComponent")


def event_errors(obj: Object, controller_field: str) -> list[FieldError]:
    """Check an event in the core form; `controller_field` names reportingComponent in the request's version."""
    errors = _strict_errors(obj, controller_field) if obj.get("eventTime") else _lenient_errors(obj)
    namespace = text(obj, "metadata", "namespace")
    return errors + invalid_values("namespace", namespace, dns_subdomain_errors(namespace))


def _lenient_errors(obj: Object) -> list[FieldError]:
    namespace, involved = text(obj, "metadata", "namespace"), text(obj, "involvedObject", "namespace")
    # An event about a cluster-scoped object is in `default`.
    expected = (involved,) if involved else ("", _DEFAULT_NAMESPACE)
    if namespace in expected:
        return []
    return [invalid("involvedObject.namespace", involved, "does not match event.namespace")]


def _strict_errors(obj: Object, controller_field: str) -> list[FieldError]:
    errors = []
    namespace, involved = text(obj, "metadata", "namespace"), text(obj, "involvedObject", "namespace")
    if not involved and namespace not in (_DEFAULT_NAMESPACE, _SYSTEM_NAMESPACE):
        errors.append(invalid("involvedObject.namespace", involved, "does not match event.namespace"))
    controller = text(obj, "reportingComponent")
    if not controller:
        errors.append(required(controller_field))
    errors += invalid_values(controller_field, controller, label_key_errors(controller))
    for name in ("reportingInstance", "action", "reason"):
        if not text(obj, name):
            errors.append(required(name))
        errors += _size_errors(obj, name, _TEXT_SIZE)
    return errors + _size_errors(obj, "message", _MESSAGE_SIZE)


def _size_errors(obj: Object, name: str, size: int) -> list[FieldError]:
    if len(text(obj, name).encode()) <= size:
        return []
    return [invalid(name, "", f"can have at most {size} characters")]


# --- tables and selectors --------------------------------------------------------------------------------


def cells(obj: Object, now_s: float) -> list[object]:
    """Return the row of an event in the core form."""
    first = age(obj.get("firstTimestamp") or obj.get("eventTime"), now_s)
    last = age(obj["lastTimestamp"], now_s) if obj.get("lastTimestamp") else first
    count = number(obj, "count") or 1
    if series := mapping(obj, "series"):
        last, count = age(series.get("lastObservedTime"), now_s), number(series, "count") or 0
    return [
        last,
        text(obj, "type"),
        text(obj, "reason"),
        _target(mapping(obj, "involvedObject")),
        text(obj, "involvedObject", "fieldPath"),
        _source(obj),
        text(obj, "message").strip(),
        first,
        count,
        text(obj, "metadata", "name"),
    ]


def _target(involved: Object) -> str:
    kind, name = text(involved, "kind").lower(), text(involved, "name")
    return f"{kind}/{name}" if name else kind


def _source(obj: Object) -> str:
    component = text(obj, "source", "component") or text(obj, "reportingComponent")
    instance = text(obj, "source", "host") or text(obj, "reportingInstance")
    return f"{component}, {instance}" if instance else component


COLUMNS = (
    Column("Last Seen", description="How long ago it was last seen."),
    Column("Type", description="Normal or Warning."),
    Column("Reason", description="Why it was reported."),
    Column("Object", description="What it happened to."),
    Column("Subobject", description="Which part of the object it is about.", priority=1),
    Column("Source", description="Who reports it.", priority=1),
    Column("Message", description="What happened."),
    Column("First Seen", description="How long ago it was first seen.", priority=1),
    Column("Count", description="How often it was seen.", priority=1),
    Column("Name", "string", "name", "Name of the object.", 1),
)
_REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def source_label(obj: Object) -> str:
    """Return the field label `source`: the component, by its old or its new name."""
    return text(obj, "source", "component") or text(obj, "reportingComponent")


def reference_labels(field: str) -> dict[str, Callable[[Object], str]]:
    """Return field labels that read the fields of an object reference."""
    return {f"{field}.{name}": _reader(field, name) for name in _REFERENCE_FIELDS}


def _reader(*path: str) -> Callable[[Object], str]:
    return lambda obj: text(obj, *path)


EVENTS = Kind(
    **builtin("", "Event", "events"),
    short_names=("ev",),
    update_creates=True,
    unconditional_update=True,
    columns=COLUMNS,
    cells=cells,
    field_labels={
        **reference_labels("involvedObject"),
        "reason": _reader("reason"),
        "reportingComponent": _reader("reportingComponent"),
        "source": source_label,
        "type": _reader("type"),
    },
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=validate_core,
    validate_update=lambda obj, old: validate_core(obj),
)
