"""The APIExport `kubernetes` of root: Kubernetes' own kinds, for workspaces that bind it.

Bootstrap writes the export; its APIResourceSchemas, made of Kubernetes' components, are written once somebody binds it
(`controllers.exports.kubernetes_schemas`). Invariant: the export names its schemas without any of them being made.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.kcp.manifest import Manifest, ObjectStamp
from atoll.machinery.kinds.kubernetes.schema_names import schema_names
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_EXPORTS, API_RESOURCE_SCHEMAS

EXPORT = "kubernetes"
EXPORT_KEY = ObjectKey(API_EXPORTS, ROOT, "", EXPORT)
#: Label, with its value, of every binding of the export.
BINDING_LABEL = hashes.EXPORT_LABEL, hashes.export_hash(ROOT, EXPORT)
#: Annotation of the export: another shard has a binding to it, so that the root shard writes the schemas.
REQUESTED = "internal.atoll.dev/schemas-requested"


def offered() -> list[Object]:
    """Return `spec.resources` of the export."""
    return [_offered(row, name) for row, name in schema_names().items()]


def _offered(row: str, schema: str) -> Object:
    resource, _, group = row.partition(".")
    return {"name": resource, "group": _group(group), "schema": schema, "storage": {"crd": {}}}


def _group(group: str) -> str:
    """Return the API group of an APIResourceSchema's name, in which the empty one is `core`."""
    return "" if group == "core" else group


def schema_keys() -> Iterator[ObjectKey]:
    """Yield the keys of the schemas in root."""
    return (ObjectKey(API_RESOURCE_SCHEMAS, ROOT, "", name) for name in schema_names().values())


def resource_schemas(stamp: ObjectStamp) -> Iterator[Manifest]:
    """Yield the schemas; making all takes a fifth of a second, so that it is done beside the event loop."""
    from atoll.machinery.kinds.kubernetes.resource_schemas import resource_schema

    for row in schema_names():
        schema = resource_schema(row)
        metadata = schema["metadata"]
        stamped = stamp.metadata("apiresourceschemas", metadata["name"], annotations=metadata["annotations"])
        yield Manifest(stamp.cluster, {**schema, "metadata": stamped}, API_RESOURCE_SCHEMAS)
