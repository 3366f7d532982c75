"""Conversion of an APIExport or APIBinding to a version.

`machinery.kcp.kinds` calls `convert` for reads, writes and field ownership; admission calls `latest` on objects in the
version of a request. Invariant: the input is not changed; an object already in the wanted version is returned as is.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.machinery.kcp.apis.versions import annotations as notes
from atoll.machinery.kcp.apis.versions import apibindings, apiexports
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid

V1ALPHA1, V1ALPHA2 = "apis.kcp.io/v1alpha1", "apis.kcp.io/v1alpha2"
_Step = Callable[[Object], Object]
_STEPS: dict[tuple[str, str], _Step] = {
    ("APIExport", V1ALPHA1): apiexports.to_v1alpha1,
    ("APIExport", V1ALPHA2): apiexports.to_v1alpha2,
    ("APIBinding", V1ALPHA1): apibindings.to_v1alpha1,
    ("APIBinding", V1ALPHA2): apibindings.to_v1alpha2,
}
_UNDECODABLE = {
    notes.RESOURCES: "failed to decode overhanging resource schemas",
    notes.CLAIMS: "failed to decode overhanging permission claims",
    notes.ACCEPTABLE_CLAIMS: "failed to decode overhanging permission claims",
    notes.EXPORT_CLAIMS: "failed to decode overhanging permission claims",
    notes.APPLIED_CLAIMS: "failed to decode overhanging permission claims",
}


def convert(obj: Object, kind: str, api_version: str) -> Object:
    """Return an object of a kind (`APIExport` or `APIBinding`) in a version; any JSON is accepted."""
    if obj.get("apiVersion") == api_version:
        return obj
    return {**_STEPS[kind, api_version](obj), "apiVersion": api_version}


def latest(obj: Object) -> Object:
    """Return the object in v1alpha2; objects of other kinds are returned as is."""
    kind = obj.get("kind")
    if obj.get("apiVersion") != V1ALPHA1 or kind not in {"APIExport", "APIBinding"}:
        return obj
    return convert(obj, str(kind), V1ALPHA2)


def problems(obj: Object, kind: str) -> list[FieldError]:
    """Return an error for each part of an object of v1alpha1 that its conversion would silently omit."""
    given = notes.mapping(notes.mapping(obj.get("metadata")).get("annotations"))
    found = apiexports.problems(obj) if kind == "APIExport" else []
    for key, text in _UNDECODABLE.items():
        value = given.get(key)
        if isinstance(value, str) and notes.parsed(value) is None:
            found.append(invalid(f"metadata.annotations[{key}]", value, text))
    return found
