"""APIResourceSchemas of Kubernetes' kinds, as a provider would write them.

They say what a definition can say: schemas, names, subresources, and the columns that a JSONPath selects. What only
code can do (computed cells, conditional defaults, conversion between versions of different form) is not in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from atoll.machinery.kinds.kubernetes.structural import structural
from atoll.machinery.kinds.kubernetes.tables import Row, Version, cell, kubernetes_version, rows
from atoll.machinery.kinds.kubernetes.traits import traits_of
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object, encode_json

_APPROVAL = "https://github.com/kubernetes/kubernetes"
#: The same in all kinds that scale; the selector is computed, so that no path selects it.
_SCALE: Object = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
_AGE: Object = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def resource_schema(name: str) -> Object:
    """Return the APIResourceSchema of a kind by its `<plural>.<group>`, such as `pods.core`.

    Its own name begins with the version of Kubernetes and the hash of its content. Raises KeyError for an unknown kind.
    """
    row = rows()[name]
    names: Object = {
        "kind": row.kind,
        "listKind": row.kind + "List",
        "plural": row.plural,
        "singular": row.singular,
        **({"shortNames": list(row.short_names)} if row.short_names else {}),
        **({"categories": list(row.categories)} if row.categories else {}),
    }
    is_segment = traits_of(row.kind).name_rule == "path-segment"
    spec: Object = {
        "group": row.group,
        "names": names,
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "nameValidation": "PathSegmentName" if is_segment else "DNS1123Subdomain",
        "versions": [_version(row, version) for version in row.versions],
        **({"conversion": {"strategy": "None"}} if len(row.versions) > 1 else {}),
    }
    release = "-".join(kubernetes_version().split(".")[:2])
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIResourceSchema",
        "metadata": {
            "name": f"v{release}-{content_hash(spec)[:9]}.{row.name}",
            "annotations": {wellknown.API_APPROVED: _APPROVAL},
        },
        "spec": spec,
    }


def content_hash(spec: Object) -> str:
    """Return the SHA-256 of a spec in hexadecimal digits; equal specs have equal hashes."""
    return hashlib.sha256(encode_json(spec)).hexdigest()


def _version(row: Row, version: Version) -> Object:
    declared: Object = {}
    if "status" in version.subresources:
        declared["status"] = {}
    if "scale" in version.subresources:
        declared["scale"] = _SCALE
    return {
        "name": version.name,
        "served": True,
        "storage": version is row.versions[0],
        "schema": structural(version.component),
        **({"subresources": declared} if declared else {}),
        "additionalPrinterColumns": list(_columns(row)),
    }


def _columns(row: Row) -> Iterator[Object]:
    for column in row.columns:
        found = cell(row.kind, column.name)
        if column.name == "Age":
            yield _AGE
        elif column.name != "Name" and found.path:
            yield {
                "name": column.name,
                "type": column.type,
                "jsonPath": found.path,
                **({"priority": column.priority} if column.priority else {}),
            }
