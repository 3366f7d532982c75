"""Validation and defaulting of CustomResourceDefinitions.

The kind calls it in addition to the schema of the type itself; errors name the fields of the version that the client
wrote (`spec.versions[0].schema.openAPIV3Schema...`). Invariant: a valid definition can be served as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.definitions.accessors import list_of, mapping, versions
from atoll.machinery.schema.definitions.approval import approval_errors
from atoll.machinery.schema.definitions.conversion import bundle_errors, conversion_errors
from atoll.machinery.schema.definitions.names import group_errors, names_errors, required_name_errors, scope_errors
from atoll.machinery.schema.definitions.version_schema import RuleValidator, unrecognized_formats
from atoll.machinery.schema.definitions.versions import version_list_errors
from atoll.machinery.schema.fielderrors import invalid, quote, required

SERVICE_WARNING = (
    "spec.conversion.webhook.clientConfig.service: services cannot be reached from here, conversion will fail; use url"
)
_BUNDLE = "spec.conversion.webhook.clientConfig.caBundle"


def default_crd(obj: Object) -> None:
    """Set, in place, the defaults of a CustomResourceDefinition: singular, listKind, conversion, service port."""
    spec = mapping(obj, "spec")
    names = mapping(spec, "names")
    kind = names.get("kind")
    if isinstance(kind, str) and kind:
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or kind + "List"
    if spec.get("conversion") is None and "spec" in obj:
        spec["conversion"] = {"strategy": "None"}
    service = mapping(spec, "conversion", "webhook", "clientConfig", "service")
    if service and service.get("port") is None:
        service["port"] = 443


def add_stored_version(obj: Object) -> None:
    """Append the storage version to status.storedVersions, in place, as Kubernetes does on every write."""
    names = [each.get("name") for each in versions(obj) if each.get("storage") is True]
    status = obj.setdefault("status", {})
    if not names or not isinstance(status, dict):
        return
    stored = list_of(status.get("storedVersions"))
    if names[0] not in stored:
        status["storedVersions"] = [*stored, names[0]]


def validate_crd(obj: Object, *, system: bool = False, rules: RuleValidator | None = None) -> list[FieldError]:
    """Validate a new CustomResourceDefinition, after `default_crd` and `add_stored_version`.

    `system` allows the empty group, whose definitions are named `<plural>.core`: only the system has such. Other
    metadata is validated as that of every kind. `rules` validates x-kubernetes-validations.
    """
    return [
        *_name_errors(obj, system),
        *_spec_errors(obj, system, {}, rules),
        *_status_errors(obj),
        *approval_errors(obj, None),
    ]


def validate_crd_update(
    obj: Object, old: Object, *, system: bool = False, rules: RuleValidator | None = None
) -> list[FieldError]:
    """Validate a changed CustomResourceDefinition.

    Unchanged versions are not validated again, nor are the rules of an unchanged schema.
    """
    validated = {name: each for each in versions(old) if isinstance(name := each.get("name"), str)}
    errors = [*_spec_errors(obj, system, validated, rules), *_immutable_errors(obj, old), *_status_errors(obj)]
    if list(bundle_errors(_bundle(old), _BUNDLE)):
        errors = [error for error in errors if error.field != _BUNDLE]
    return [*errors, *approval_errors(obj, old)]


def validate_crd_status(obj: Object) -> list[FieldError]:
    """Validate a CustomResourceDefinition's status on write."""
    return list(names_errors(mapping(obj, "status", "acceptedNames"), "status.acceptedNames"))


def crd_warnings(obj: Object, old: Object | None = None) -> list[str]:
    """Return the warnings for a CustomResourceDefinition or APIResourceSchema; with `old` only the new ones."""
    before = set(_warnings(old)) if old is not None else set()
    return [warning for warning in dict.fromkeys(_warnings(obj)) if warning not in before]


def _name_errors(obj: Object, system: bool) -> Iterator[FieldError]:
    spec = mapping(obj, "spec")
    group = spec.get("group") or ("core" if system else "")
    name = mapping(obj, "metadata").get("name")
    if name and name != f"{mapping(spec, 'names').get('plural') or ''}.{group}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _spec_errors(
    obj: Object, system: bool, validated: dict[str, Object], rules: RuleValidator | None
) -> Iterator[FieldError]:
    spec = mapping(obj, "spec")
    group = spec.get("group")
    if isinstance(group, str) and group:
        yield from group_errors(group)
    elif not system:
        yield required("spec.group")
    yield from scope_errors(spec)
    yield from version_list_errors(obj, ("openAPIV3Schema",), validated, rules)
    yield from required_name_errors(spec)
    yield from names_errors(mapping(spec, "names"), "spec.names")
    yield from conversion_errors(spec.get("conversion"), "spec.conversion", allow_service=True)
    if spec.get("preserveUnknownFields") is True:
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield invalid("spec.preserveUnknownFields", True, text)


def _immutable_errors(obj: Object, old: Object) -> Iterator[FieldError]:
    spec, before = mapping(obj, "spec"), mapping(old, "spec")
    names, names_before = mapping(spec, "names"), mapping(before, "names")
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
        for each in list_of(mapping(obj, "status").get("conditions"))
    )


def _status_errors(obj: Object) -> Iterator[FieldError]:
    yield from names_errors(mapping(obj, "status", "acceptedNames"), "status.acceptedNames")
    path, stored = "status.storedVersions", mapping(obj, "status").get("storedVersions")
    if not isinstance(stored, list) or not stored:
        yield invalid(path, stored or [], "must have at least one stored version")
        return
    names = [each.get("name") for each in versions(obj)]
    for version in versions(obj):
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


def _bundle(obj: Object) -> Any:
    return mapping(obj, "spec", "conversion", "webhook", "clientConfig").get("caBundle")


def _warnings(obj: Object) -> Iterator[str]:
    schemas = [version["schema"] for version in versions(obj) if isinstance(version.get("schema"), dict)]
    sources = [source for schema in schemas if isinstance(source := schema.get("openAPIV3Schema", schema), dict)]
    for source in sources:
        yield from (f"unrecognized format {quote(name)}" for name in unrecognized_formats(source))
    several = len(versions(obj)) > 1
    if several and mapping(obj, "spec", "conversion", "webhook", "clientConfig").get("service") is not None:
        yield SERVICE_WARNING
