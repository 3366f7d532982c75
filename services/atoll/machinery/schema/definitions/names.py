"""Validation of group, scope and names of definitions. `crd` and `apiresourceschema` call it."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.meta import labels
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.definitions.accessors import list_of, mapping
from atoll.machinery.schema.fielderrors import invalid, not_supported, required

#: Groups of Kubernetes' own API without a dot.
SHORT_GROUPS = frozenset({"apps", "autoscaling", "batch", "extensions", "policy"})


def group_errors(group: str) -> list[FieldError]:
    """Validate `spec.group`, which is not empty."""
    if problems := labels.dns_subdomain_errors(group):
        return [invalid("spec.group", group, ",".join(problems))]
    if "." not in group and group not in SHORT_GROUPS:
        return [invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def scope_errors(spec: Object) -> list[FieldError]:
    """Validate `spec.scope`."""
    scope = spec.get("scope")
    if not scope:
        return [required("spec.scope")]
    scopes = ("Cluster", "Namespaced")
    return [] if scope in scopes else [not_supported("spec.scope", scope, scopes)]


def required_name_errors(spec: Object) -> list[FieldError]:
    """Return an error for each missing name of `spec.names`."""
    names = mapping(spec, "names")
    return [required(f"spec.names.{key}") for key in ("plural", "singular", "kind", "listKind") if not names.get(key)]


def names_errors(names: Object, path: str) -> Iterator[FieldError]:
    """Validate the syntax of the names in `spec.names` or `status.acceptedNames`."""
    for key in ("plural", "singular", "kind", "listKind"):
        value = names.get(key)
        if isinstance(value, str) and value:
            mixed = key in ("kind", "listKind")
            if problems := labels.dns_1035_label_errors(value.lower() if mixed else value):
                text = "may have mixed case, but should otherwise match: " if mixed else ""
                yield invalid(f"{path}.{key}", value, text + ",".join(problems))
    for key in ("shortNames", "categories"):
        for index, value in enumerate(list_of(names.get(key))):
            if isinstance(value, str) and (problems := labels.dns_1035_label_errors(value)):
                yield invalid(f"{path}.{key}[{index}]", value, ",".join(problems))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
