"""Environment variables of containers and their sources, such as fields and resources of the pod itself."""

from __future__ import annotations

import re
from collections.abc import Collection

from atoll.machinery.kinds.checks import invalid_values, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.paths import no_backsteps
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    amount_of,
    label,
    label_key,
    matches,
    not_empty,
    present,
    quantity_text,
)
from atoll.machinery.meta.labels import config_key_errors, dns_subdomain_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import invalid, not_found, not_supported, required

_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_BULK_SOURCES = ("configMapRef", "secretRef")
_OWN_FIELDS = ("metadata.name", "metadata.namespace", "metadata.uid")
_STATUS_FIELDS = ("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
ENVIRONMENT_FIELDS = (*_OWN_FIELDS, "spec.nodeName", "spec.serviceAccountName", *_STATUS_FIELDS)
VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", *_OWN_FIELDS)
_MAPS = ("metadata.annotations", "metadata.labels")
_VARIABLE = re.compile("[ -<>-~]+\\Z")
_POD_FIELDS = frozenset(
    {*ENVIRONMENT_FIELDS, *_MAPS, "spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host"}
)
_RESOURCES = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
_SIZES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")


def variable_name_errors(name: str) -> list[str]:
    """Return what keeps a text from being the name of an environment variable."""
    if not name:
        return ["environment variable name must be non-empty"]
    if _VARIABLE.match(name):
        return []
    return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]


def environment(container: Object, at: str) -> Errors:
    """Check `env` and `envFrom` of a container."""
    for index, variable in objects(container, "env"):
        field = f"{at}.env[{index}]"
        yield from not_empty(variable, field, "name")
        yield from matches(variable, field, "name", variable_name_errors)
        if isinstance(variable.get("valueFrom"), dict):
            yield from _source(variable["valueFrom"], f"{field}.valueFrom", text(variable, "value"))
    for index, bulk in objects(container, "envFrom"):
        field = f"{at}.envFrom[{index}]"
        yield from matches(bulk, field, "prefix", variable_name_errors)
        found = present(bulk, _BULK_SOURCES)
        for name in found:
            source = mapping(bulk, name)
            if not text(source, "name"):
                yield required(f"{field}.{name}.name")
            yield from matches(source, f"{field}.{name}", "name", dns_subdomain_errors)
        if not found:
            yield invalid(f"{at}.envFrom", "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(found) > 1:
            yield invalid(f"{at}.envFrom", "", "may not have more than one field specified at a time")


def _source(source: Object, at: str, value: str) -> Errors:
    found = present(source, _SOURCES)
    for name in found:
        yield from _one_source(name, mapping(source, name), f"{at}.{name}")
    if not found:
        names = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield invalid(at, "", f"must specify one of: {names}")
    elif value:
        yield invalid(at, "", "may not be specified when `value` is not empty")
    elif len(found) > 1:
        yield invalid(at, "", "may not have more than one field specified at a time")


def _one_source(name: str, source: Object, at: str) -> Errors:
    if name == "fieldRef":
        yield from own_field(source, at, ENVIRONMENT_FIELDS)
    elif name == "resourceFieldRef":
        yield from own_resource(source, at)
    elif name == "fileKeyRef":
        yield from not_empty(source, at, "key", "volumeName", "path")
        yield from matches(source, at, "key", variable_name_errors)
        yield from label(source, at, "volumeName")
        yield from no_backsteps(text(source, "path"), f"{at}.path")
    else:
        yield from invalid_values(f"{at}.name", text(source, "name"), dns_subdomain_errors(text(source, "name")))
        yield from not_empty(source, at, "key")
        yield from matches(source, at, "key", config_key_errors)


def own_field(source: Object, at: str, supported: Collection[str]) -> Errors:
    """Check a reference to a field of the pod itself."""
    path = text(source, "fieldPath")
    if not path:
        yield from not_empty(source, at, "fieldPath")
        return
    version = text(source, "apiVersion") or "v1"
    base, subscript, is_split = _split(path)
    if version != "v1":
        yield invalid(f"{at}.fieldPath", path, f"error converting fieldPath: unsupported pod version: {version}")
    elif is_split and base not in _MAPS:
        detail = f"error converting fieldPath: field label does not support subscript: {path}"
        yield invalid(f"{at}.fieldPath", path, detail)
    elif is_split:
        yield from label_key(at, subscript.lower() if base == _MAPS[0] else subscript)
    elif path not in _POD_FIELDS:
        yield invalid(f"{at}.fieldPath", path, f"error converting fieldPath: field label not supported: {path}")
    elif ("spec.nodeName" if path == "spec.host" else path) not in supported:
        yield not_supported(f"{at}.fieldPath", path, sorted(supported))


def _split(path: str) -> tuple[str, str, bool]:
    """Split `metadata.labels['key']`."""
    base, found, subscript = path.removesuffix("']").partition("['")
    return base, subscript, bool(found and base and path.endswith("']"))


def own_resource(source: Object, at: str, *, is_volume: bool = False) -> Errors:
    """Check a reference to the requests or limits of a container of the pod."""
    name = text(source, "resource")
    if is_volume and not text(source, "containerName"):
        yield required(f"{at}.containerName")
    elif not name:
        yield from not_empty(source, at, "resource")
    elif name not in _RESOURCES and not name.startswith(_HUGE_PAGES):
        yield not_supported(f"{at}.resource", name, _RESOURCES)
    divisor = source.get("divisor")
    if divisor and amount_of(divisor):
        yield from _divisor(name, quantity_text(divisor), f"{at}.divisor")


def _divisor(name: str, divisor: str, field: str) -> Errors:
    if name.endswith(".cpu"):
        if divisor not in ("1m", "1"):
            yield invalid(field, name, "only divisor's values 1m and 1 are supported with the cpu resource")
    elif (name in _RESOURCES or name.startswith(_HUGE_PAGES)) and divisor not in _SIZES:
        kind = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}
        named = kind.get(name.partition(".")[2], "hugepages")
        yield invalid(field, name, f"only divisor's values {', '.join(_SIZES)} are supported with the {named} resource")


def file_volumes(spec: Object, containers: list[tuple[str, Object]]) -> Errors:
    """Check that files with variables are in a volume of the pod that a container may have written."""
    sources = {text(volume, "name"): volume for _, volume in objects(spec, "volumes")}
    for at, container in containers:
        for index, variable in objects(container, "env"):
            source = mapping(variable, "valueFrom", "fileKeyRef")
            if not source:
                continue
            field, name = f"{at}.env[{index}].valueFrom.fileKeyRef.volumeName", text(source, "volumeName")
            if name not in sources:
                yield not_found(field, name)
            elif not isinstance(sources[name].get("emptyDir"), dict):
                yield invalid(field, name, "referenced volume must be of type emptyDir")
