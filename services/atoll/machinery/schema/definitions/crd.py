"""Definitions of kinds, judged when they are written: CustomResourceDefinitions and APIResourceSchemas.

The kinds of both call these checks beside the schema of their own type; errors name the fields of the version that
the client wrote (`spec.versions[0].schema.openAPIV3Schema...`). What passes is served without further questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from atoll.machinery.meta import labels
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.definitions.conversion import bundle_errors, conversion_errors
from atoll.machinery.schema.definitions.version_schema import RuleValidator, definition_errors, unrecognized_formats
from atoll.machinery.schema.definitions.versions import version_errors
from atoll.machinery.schema.fielderrors import invalid, not_supported, quote, required
from atoll.machinery.schema.structural.fast_validation import same

APPROVED_ANNOTATION = "api-approved.kubernetes.io"
SERVICE_WARNING = (
    "spec.conversion.webhook.clientConfig.service: services cannot be reached from here, conversion will fail; use url"
)
_APPROVAL_HELP = "see https://github.com/kubernetes/enhancements/pull/1111"
_PREFIX = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_BUNDLE = "spec.conversion.webhook.clientConfig.caBundle"
#: Groups of Kubernetes itself that have no dot.
_SHORT_GROUPS = frozenset({"apps", "autoscaling", "batch", "extensions", "policy"})


def default_crd(obj: Object) -> None:
    """Fill, in place, what a CustomResourceDefinition may leave out: singular, listKind, conversion, service port."""
    spec = _mapping(obj, "spec")
    names = _mapping(spec, "names")
    kind = names.get("kind")
    if isinstance(kind, str) and kind:
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or kind + "List"
    if spec.get("conversion") is None and "spec" in obj:
        spec["conversion"] = {"strategy": "None"}
    service = _mapping(spec, "conversion", "webhook", "clientConfig", "service")
    if service and service.get("port") is None:
        service["port"] = 443


def add_stored_version(obj: Object) -> None:
    """Append the storage version to status.storedVersions, in place, as Kubernetes does on every write."""
    names = [each.get("name") for each in _versions(obj) if each.get("storage") is True]
    status = obj.setdefault("status", {})
    if not names or not isinstance(status, dict):
        return
    stored = _list(status.get("storedVersions"))
    if names[0] not in stored:
        status["storedVersions"] = [*stored, names[0]]


def validate_crd(obj: Object, *, system: bool = False, rules: RuleValidator | None = None) -> list[FieldError]:
    """Every reason to refuse a new CustomResourceDefinition, after `default_crd` and `add_stored_version`.

    `system` allows the empty group, whose definitions are named `<plural>.core`: the system brings such, tenants
    do not. Metadata but for the name is judged with every kind's. `rules` judges x-kubernetes-validations.
    """
    return [
        *_name_errors(obj, system),
        *_spec_errors(obj, system, {}, rules),
        *_status_errors(obj),
        *_approval_errors(obj, None),
    ]


def validate_crd_update(
    obj: Object, old: Object, *, system: bool = False, rules: RuleValidator | None = None
) -> list[FieldError]:
    """Every reason to refuse a changed CustomResourceDefinition. Versions that did not change are not judged again,
    nor are the rules of a schema that did not change."""
    known = {name: each for each in _versions(old) if isinstance(name := each.get("name"), str)}
    errors = [*_spec_errors(obj, system, known, rules), *_immutable_errors(obj, old), *_status_errors(obj)]
    if list(bundle_errors(_bundle(old), _BUNDLE)):
        errors = [error for error in errors if error.field != _BUNDLE]
    return [*errors, *_approval_errors(obj, old)]


def validate_crd_status(obj: Object) -> list[FieldError]:
    """Every reason to refuse a write of a CustomResourceDefinition's status."""
    return list(_names_errors(_mapping(obj, "status", "acceptedNames"), "status.acceptedNames"))


def crd_warnings(obj: Object, old: Object | None = None) -> list[str]:
    """What to tell who writes a definition, of either form, and with `old` only what is new."""
    before = set(_warnings(old)) if old is not None else set()
    return [warning for warning in dict.fromkeys(_warnings(obj)) if warning not in before]


def validate_resource_schema(obj: Object, *, rules: RuleValidator | None = None) -> list[FieldError]:
    """Every reason to refuse an APIResourceSchema. That its spec cannot change is admission's to say."""
    spec = _mapping(obj, "spec")
    errors = list(_resource_schema_name_errors(obj, spec))
    group = spec.get("group")
    if group == "core":
        errors.append(invalid("spec.group", group, 'must be empty string for "core" resources'))
    elif isinstance(group, str) and group and group not in _SHORT_GROUPS:
        errors += _group_errors(group)
    errors += _scope_errors(spec)
    errors += _required_names(spec)
    errors += _names_errors(_mapping(spec, "names"), "spec.names")
    errors += _version_list_errors(obj, (), {}, rules)
    errors += _resource_schema_conversion_errors(spec)
    return [*errors, *_approval_errors(obj, None)]


# --- names ---------------------------------------------------------------------------------------------------


def _name_errors(obj: Object, system: bool) -> Iterator[FieldError]:
    spec = _mapping(obj, "spec")
    group = spec.get("group") or ("core" if system else "")
    name = _mapping(obj, "metadata").get("name")
    if name and name != f"{_mapping(spec, 'names').get('plural') or ''}.{group}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _resource_schema_name_errors(obj: Object, spec: Object) -> Iterator[FieldError]:
    name = _mapping(obj, "metadata").get("name") or ""
    rest = f"{_mapping(spec, 'names').get('plural') or ''}.{spec.get('group') or 'core'}"
    if not isinstance(name, str) or not name.endswith("." + rest):
        yield invalid("metadata.name", name, f"must end in .{rest}")
    elif not _PREFIX.match(name.removesuffix("." + rest)):
        text = "must match ^[a-z]([-a-z0-9]*[a-z0-9])? in front of"
        yield invalid("metadata.name", name, f"{text} .{rest}")


def _group_errors(group: str) -> list[FieldError]:
    if problems := labels.dns_subdomain_errors(group):
        return [invalid("spec.group", group, ",".join(problems))]
    if "." not in group:
        return [invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _scope_errors(spec: Object) -> list[FieldError]:
    scope = spec.get("scope")
    if not scope:
        return [required("spec.scope")]
    known = ("Cluster", "Namespaced")
    return [] if scope in known else [not_supported("spec.scope", scope, known)]


def _required_names(spec: Object) -> list[FieldError]:
    names = _mapping(spec, "names")
    return [required(f"spec.names.{key}") for key in ("plural", "singular", "kind", "listKind") if not names.get(key)]


def _names_errors(names: Object, path: str) -> Iterator[FieldError]:
    for key in ("plural", "singular", "kind", "listKind"):
        value = names.get(key)
        if isinstance(value, str) and value:
            mixed = key in ("kind", "listKind")
            if problems := labels.dns_1035_label_errors(value.lower() if mixed else value):
                text = "may have mixed case, but should otherwise match: " if mixed else ""
                yield invalid(f"{path}.{key}", value, text + ",".join(problems))
    for key in ("shortNames", "categories"):
        for index, value in enumerate(_list(names.get(key))):
            if isinstance(value, str) and (problems := labels.dns_1035_label_errors(value)):
                yield invalid(f"{path}.{key}[{index}]", value, ",".join(problems))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")


# --- spec ----------------------------------------------------------------------------------------------------


def _spec_errors(
    obj: Object, system: bool, known: dict[str, Object], rules: RuleValidator | None
) -> Iterator[FieldError]:
    spec = _mapping(obj, "spec")
    group = spec.get("group")
    if isinstance(group, str) and group:
        yield from _group_errors(group)
    elif not system:
        yield required("spec.group")
    yield from _scope_errors(spec)
    yield from _version_list_errors(obj, ("openAPIV3Schema",), known, rules)
    yield from _required_names(spec)
    yield from _names_errors(_mapping(spec, "names"), "spec.names")
    yield from conversion_errors(spec.get("conversion"), "spec.conversion", allow_service=True)
    if spec.get("preserveUnknownFields") is True:
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield invalid("spec.preserveUnknownFields", True, text)


def _version_list_errors(
    obj: Object, steps: tuple[str, ...], known: dict[str, Object], rules: RuleValidator | None
) -> Iterator[FieldError]:
    """Versions with their schemas, which stand at `schema` and `steps` below; `known` are those judged before."""
    versions = _versions(obj)
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name")
        if not isinstance(name, str) or (problems := labels.dns_1035_label_errors(name)):
            yield invalid(
                f"{path}.name", name or "", ",".join(problems) if isinstance(name, str) else "must be a string"
            )
        schema, at = _schema_of(version, steps), ".".join([path, "schema", *steps])
        if schema is None:
            yield required(at)
        before = known.get(name) if isinstance(name, str) else None
        if before is None or not same(version, before):
            unchanged = before is not None and same(schema, _schema_of(before, steps))
            errors = _schema_errors(version, schema, at, None if unchanged else rules)
            yield from errors
            yield from version_errors(version, schema if not errors else None, path)
    names = [each.get("name") for each in versions]
    if len(set(map(str, names))) != len(names):
        yield invalid("spec.versions", names, "must contain unique version names")
    if sum(each.get("storage") is True for each in versions) != 1:
        yield invalid("spec.versions", names, "must have exactly one version marked as storage version")


def _schema_of(version: Object, steps: tuple[str, ...]) -> Any:
    schema: Any = version.get("schema")
    for step in steps:
        schema = schema.get(step) if isinstance(schema, dict) else None
    return schema


def _schema_errors(version: Object, schema: Any, path: str, rules: RuleValidator | None) -> list[FieldError]:
    if schema is None:
        return []
    subresources = version.get("subresources")
    has_status = isinstance(subresources, dict) and subresources.get("status") is not None
    return definition_errors(schema, path, has_status=has_status, rules=rules)


def _resource_schema_conversion_errors(spec: Object) -> list[FieldError]:
    conversion = spec.get("conversion")
    if conversion is None:
        several = isinstance(spec.get("versions"), list) and len(spec["versions"]) > 1
        text = "Conversion must be specified when multiple versions exist"
        return [invalid("spec", "object", text)] if several else []
    return conversion_errors(conversion, "spec.conversion", allow_service=False)


def _immutable_errors(obj: Object, old: Object) -> Iterator[FieldError]:
    spec, before = _mapping(obj, "spec"), _mapping(old, "spec")
    names, names_before = _mapping(spec, "names"), _mapping(before, "names")
    pairs = [("group", spec, before), ("names.plural", names, names_before)]
    if _is_established(old):
        pairs += [("scope", spec, before), ("names.kind", names, names_before)]
    for path, new, was in pairs:
        key = path.rpartition(".")[2]
        if new.get(key) != was.get(key):
            yield invalid(f"spec.{path}", new.get(key), "field is immutable")


def _is_established(obj: Object) -> bool:
    return any(
        isinstance(each, dict) and each.get("type") == "Established" and each.get("status") == "True"
        for each in _list(_mapping(obj, "status").get("conditions"))
    )


# --- status and approval -------------------------------------------------------------------------------------


def _status_errors(obj: Object) -> Iterator[FieldError]:
    yield from _names_errors(_mapping(obj, "status", "acceptedNames"), "status.acceptedNames")
    path, stored = "status.storedVersions", _mapping(obj, "status").get("storedVersions")
    if not isinstance(stored, list) or not stored:
        yield invalid(path, stored or [], "must have at least one stored version")
        return
    names = [each.get("name") for each in _versions(obj)]
    for version in _versions(obj):
        if version.get("storage") is True and version.get("name") not in stored:
            yield invalid(path, stored, f"must have the storage version {version.get('name')}")
    for index, name in enumerate(stored):
        if name not in names:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions"
                f" until a storage migration ensures no data remains persisted in {name} and removes {name} from"
                " status.storedVersions"
            )
            yield invalid(f"{path}[{index}]", name, text)


def _approval_errors(obj: Object, old: Object | None) -> list[FieldError]:
    group = _mapping(obj, "spec").get("group")
    if not isinstance(group, str) or not is_protected(group):
        return []
    state, reason = approval(obj)
    if state in ("approved", "unapproved") or (old is not None and approval(old)[0] == state):
        return []
    field = f"metadata.annotations[{APPROVED_ANNOTATION}]"
    if state == "missing":
        return [required(field, reason)]
    return [invalid(field, _mapping(obj, "metadata", "annotations").get(APPROVED_ANNOTATION), reason)]


def is_protected(group: str) -> bool:
    """Whether a group is one that only Kubernetes hands out."""
    return f".{group}".endswith((".k8s.io", ".kubernetes.io"))


def approval(obj: Object) -> tuple[str, str]:
    """How a definition in a group of Kubernetes is approved, and in which words.

    The first is `missing`, `unapproved` (said openly), `approved` (a URL) or `invalid`; the second is the message
    of the condition KubernetesAPIApprovalPolicyConformant.
    """
    value = _mapping(obj, "metadata", "annotations").get(APPROVED_ANNOTATION)
    annotation = f"annotation {quote(APPROVED_ANNOTATION)}"
    if not value or not isinstance(value, str):
        return "missing", f"protected groups must have approval {annotation}, {_APPROVAL_HELP}"
    if value.startswith("unapproved"):
        return "unapproved", f"not approved: {quote(value)}"
    try:
        url = urlsplit(value)
    except ValueError:
        url = urlsplit("")
    if url.scheme and url.netloc:
        return "approved", f"approved in {value}"
    text = f'protected groups must have approval {annotation} with either a URL or a reason starting with "unapproved"'
    return "invalid", f"{text}, {_APPROVAL_HELP}"


def _bundle(obj: Object) -> Any:
    return _mapping(obj, "spec", "conversion", "webhook", "clientConfig").get("caBundle")


def _warnings(obj: Object) -> Iterator[str]:
    schemas = [version["schema"] for version in _versions(obj) if isinstance(version.get("schema"), dict)]
    sources = [source for schema in schemas if isinstance(source := schema.get("openAPIV3Schema", schema), dict)]
    for source in sources:
        yield from (f"unrecognized format {quote(name)}" for name in unrecognized_formats(source))
    several = len(_versions(obj)) > 1
    if several and _mapping(obj, "spec", "conversion", "webhook", "clientConfig").get("service") is not None:
        yield SERVICE_WARNING


def _mapping(obj: Any, *path: str) -> Object:
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _versions(obj: Object) -> list[Object]:
    return [each for each in _list(_mapping(obj, "spec").get("versions")) if isinstance(each, dict)]
