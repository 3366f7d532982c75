"""APIExports in both versions: schema names are converted to resources, and back.

`convert` calls these functions. v1alpha1 lists names of APIResourceSchemas, which contain group and resource; other
resources of v1alpha2 (virtual storage, a schema name with another group or resource) are kept in an annotation.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.kcp.apis.versions import annotations as notes
from atoll.machinery.kcp.apis.versions import claims
from atoll.machinery.kcp.apis.versions.annotations import mapping, objects
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid

CORE = "core"
MIN_SEGMENTS = 3


def to_v1alpha1(obj: Object) -> Object:
    """Convert an APIExport from v1alpha2."""
    found = dict(obj)
    spec = mapping(obj.get("spec"))
    older = claims.to_v1alpha1(objects(spec.get("permissionClaims")), notes.read(obj, notes.OLD_CLAIMS), scoped=False)
    offered = objects(spec.get("resources"))
    others = [each for each in offered if not _is_named(each)]
    if "spec" in obj:
        found["spec"] = _spec(spec, older.claims, dropped="resources")
        names = [each["schema"] for each in offered if _is_named(each)]
        if "resources" in spec and (names or not others):
            found["spec"]["latestResourceSchemas"] = names
    added = {notes.RESOURCES: others, notes.CLAIMS: older.kept}
    found["metadata"] = notes.annotated(obj, (*notes.ON_V1ALPHA1, *notes.ON_V1ALPHA2), added)
    return found


def to_v1alpha2(obj: Object) -> Object:
    """Convert an APIExport from v1alpha1.

    Schema names without a resource are omitted. Of several names for one resource the last is used: during an apply
    that replaces one name by another, both are present.
    """
    found = dict(obj)
    spec = mapping(obj.get("spec"))
    newer = claims.to_v1alpha2(objects(spec.get("permissionClaims")), notes.read(obj, notes.CLAIMS), scoped=False)
    others = notes.read(obj, notes.RESOURCES)
    if "spec" in obj:
        found["spec"] = _spec(spec, newer.claims, dropped="latestResourceSchemas")
        names = spec.get("latestResourceSchemas")
        if isinstance(names, list) or others:
            found["spec"]["resources"] = [*_resources(names).values(), *others]
    found["metadata"] = notes.annotated(obj, notes.ON_V1ALPHA1, {notes.OLD_CLAIMS: newer.kept})
    return found


def problems(obj: Object) -> list[FieldError]:
    """Return an error for each schema name of an APIExport of v1alpha1 that cannot be converted."""
    found, names = [], mapping(obj.get("spec")).get("latestResourceSchemas")
    known: set[str] = set()
    for index, name in enumerate(names if isinstance(names, list) else []):
        if not isinstance(name, str):
            continue
        path, kind = f"spec.latestResourceSchemas[{index}]", name.partition(".")[2]
        if _resource(name) is None:
            found.append(invalid(path, name, f"must have at least {MIN_SEGMENTS} dot-separated segments"))
        elif kind in known:
            found.append(invalid(path, name, f"there is another schema of {kind}"))
        known.add(kind)
    return found


def _spec(spec: Object, converted: list[Object], dropped: str) -> Object:
    found = {name: value for name, value in spec.items() if name != dropped}
    if isinstance(spec.get("permissionClaims"), list):
        found["permissionClaims"] = converted
    return found


def _resources(names: Any) -> dict[tuple[str, str], Object]:
    """Return the resources in a list of schema names, by group and name."""
    said = (_resource(name) for name in (names if isinstance(names, list) else []) if isinstance(name, str))
    return {(each["group"], each["name"]): each for each in said if each is not None}


def _resource(schema: str) -> Object | None:
    """Return the resource in a schema's name (`<prefix>.<resource>.<group>`); None if it has too few segments."""
    segments = schema.split(".")
    if len(segments) < MIN_SEGMENTS:
        return None
    group = ".".join(segments[2:])
    return {"name": segments[1], "group": "" if group == CORE else group, "schema": schema, "storage": {"crd": {}}}


def _is_named(resource: Object) -> bool:
    """Whether the schema's name alone describes a resource, so that v1alpha1 can express it."""
    schema = resource.get("schema")
    return isinstance(schema, str) and _resource(schema) == resource
