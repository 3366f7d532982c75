"""The annotations that carry content for which one version of an object has no field.

`apiexports` and `apibindings` read and write them during conversion. Invariant: an object carries no annotation whose
content its own fields hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from atoll.machinery.meta.objects import Object, encode_json

_PREFIX = "apis.v1alpha2.kcp.io/"
#: On objects in v1alpha1: resources that a schema name alone does not describe, and claims with more than v1alpha1 can
#: express; on bindings also the claims in status.
RESOURCES = _PREFIX + "resource-schemas"
CLAIMS = _PREFIX + "permission-claims"
ACCEPTABLE_CLAIMS = _PREFIX + "acceptable-permission-claims"
EXPORT_CLAIMS = _PREFIX + "status-export-permission-claims"
APPLIED_CLAIMS = _PREFIX + "status-applied-permission-claims"
#: On objects in v1alpha2: claims as v1alpha1 wrote them.
OLD_CLAIMS = _PREFIX + "v1alpha1-permission-claims"
OLD_EXPORT_CLAIMS = _PREFIX + "v1alpha1-status-export-permission-claims"
OLD_APPLIED_CLAIMS = _PREFIX + "v1alpha1-status-applied-permission-claims"

ON_V1ALPHA1 = (RESOURCES, CLAIMS, ACCEPTABLE_CLAIMS, EXPORT_CLAIMS, APPLIED_CLAIMS)
ON_V1ALPHA2 = (OLD_CLAIMS, OLD_EXPORT_CLAIMS, OLD_APPLIED_CLAIMS)


def read(obj: Object, key: str) -> list[Object]:
    """Return the objects in an annotation; an empty list if it is absent or malformed."""
    found = parsed(mapping(mapping(obj.get("metadata")).get("annotations")).get(key))
    return found or []


def parsed(text: Any) -> list[Object] | None:
    """Return the objects in an annotation's text; None if it is not a JSON list of objects."""
    try:
        value = msgspec.json.decode(text) if isinstance(text, str) else None
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return None
    return value


def annotated(obj: Object, dropped: tuple[str, ...], added: Mapping[str, list[Object]]) -> Object:
    """Return the object's metadata with annotations dropped and added; empty lists are not added."""
    metadata = dict(mapping(obj.get("metadata")))
    given = mapping(metadata.get("annotations"))
    kept = {key: value for key, value in given.items() if key not in dropped}
    kept.update({key: encode_json(value).decode() for key, value in added.items() if value})
    if kept:
        metadata["annotations"] = kept
    elif given:
        del metadata["annotations"]
    return metadata


def mapping(value: Any) -> Object:
    """Return `value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[Object]:
    """Return the JSON objects of a list, in order; an empty list for any other value."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
