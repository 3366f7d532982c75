"""APIServices: names, priorities and where their servers are."""

from __future__ import annotations

from atoll.machinery.kinds.binary import decoded
from atoll.machinery.kinds.checks import invalid_values, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.rules import Errors, integer, range_text
from atoll.machinery.meta.labels import dns_1035_label_errors, dns_subdomain_errors, path_segment_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid, not_supported, quote, required

_PRIORITIES = (("groupPriorityMinimum", 20_000), ("versionPriority", 1000))


def validate(obj: Object) -> list[FieldError]:
    """Check a new APIService."""
    spec, name = mapping(obj, "spec"), text(obj, "metadata", "name")
    group, version = text(spec, "group"), text(spec, "version")
    errors = list[FieldError]()
    if name != f"{version}.{group}" and not path_segment_errors(name):
        detail = f'must be `spec.version+"."+spec.group`: {quote(f"{version}.{group}")}'
        errors.append(invalid("metadata.name", name, detail))
    if not group and version != "v1":
        errors.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
    errors += invalid_values("spec.group", group, dns_subdomain_errors(group) if group else ())
    errors += invalid_values("spec.version", version, dns_1035_label_errors(version))
    for field, highest in _PRIORITIES:
        value = integer(spec.get(field))
        if value is not None and not 0 < value <= highest:
            errors.append(invalid(f"spec.{field}", value, f"must be positive and less than {highest}"))
    return errors + list(_server(spec))


def _server(spec: Object) -> Errors:
    service, bundle = spec.get("service"), decoded(spec.get("caBundle")) or b""
    is_insecure = spec.get("insecureSkipTLSVerify") is True
    if not isinstance(service, dict):
        if bundle:
            yield invalid("spec.caBundle", f"{len(bundle)} bytes", "local APIServices may not have a caBundle")
        if is_insecure:
            detail = "local APIServices may not have insecureSkipTLSVerify"
            yield invalid("spec.insecureSkipTLSVerify", True, detail)
        return
    for name in ("namespace", "name"):
        if not text(service, name):
            yield required(f"spec.service.{name}")
    port = integer(service.get("port"))
    if port is not None and not 1 <= port <= 65535:
        yield invalid("spec.service.port", port, f"port is not valid: {range_text(1, 65535)}")
    if is_insecure and bundle:
        yield invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present")


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check an APIService that replaces another."""
    return validate(obj)


def validate_status(obj: Object, old: Object) -> list[FieldError]:
    """Check the conditions of an APIService."""
    supported = ("True", "False", "Unknown")
    return [
        not_supported(f"status.conditions[{index}].status", each["status"], supported)
        for index, each in objects(obj, "status", "conditions")
        if isinstance(each.get("status"), str) and each["status"] not in supported
    ]
