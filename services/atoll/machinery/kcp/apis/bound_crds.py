"""Bound CustomResourceDefinitions: the definitions served to bound consumers, independent of later schema changes.

The binding controller, the workspace builder and bootstrap write one row for each bound APIResourceSchema in the
cluster `system:bound-crds`, named by the schema's uid, in the batch that binds; catalogs read it by the uid in the
binding's status. Invariant: a bound CRD is created once and its spec never changes, as a schema's never does; deleting
or re-creating a schema changes nothing for existing bindings.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from atoll.machinery.kcp.apis.naming_conflicts import names_of
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import SYSTEM_BOUND_CRDS, ObjectKey
from atoll.machinery.meta.objects import Object, annotations_of, status_of
from atoll.machinery.meta.types import CRDS

BOUND = "apis.kcp.io/bound-crd"
SCHEMA_CLUSTER = "apis.kcp.io/schema-cluster"
SCHEMA_NAME = "apis.kcp.io/schema-name"
#: Value of VALIDATE_NAME: object names are URL path segments; absent: DNS subdomains.
PATH_SEGMENT = "path-segment"
#: Atoll's: names of the exports through which it was bound; the index finds its bindings by them.
EXPORTS = "internal.atoll.dev/bound-through"
#: Ours: which of these lie on another shard and carried a maximal permission policy when they were last seen. It is
#: what the authorizer goes by while such an export is not known here.
POLICED = "internal.atoll.dev/policed"
#: Atoll's: it has no bindings and will be deleted unless one is made.
COLLECTED = "internal.atoll.dev/collected"

#: Fields of a version that CRDs and APIResourceSchemas have alike, besides the schema.
VERSION_FIELDS = (
    "name",
    "served",
    "storage",
    "deprecated",
    "deprecationWarning",
    "subresources",
    "additionalPrinterColumns",
    "selectableFields",
)


class RequiredCrd(msgspec.Struct, frozen=True):
    """A bound CRD that a binding refers to: cluster and name of its schema, the export, and the schema's uid."""

    cluster: str
    export: str
    schema: str
    uid: str

    @property
    def key(self) -> ObjectKey:
        return key_of(self.uid)


def key_of(uid: str) -> ObjectKey:
    """Return the key of the bound CRD of a schema uid."""
    return ObjectKey(CRDS, SYSTEM_BOUND_CRDS, "", uid)


def required_crds(binding: Object) -> Iterator[RequiredCrd]:
    """Yield the bound CRDs that a binding's status refers to."""
    status, export = status_of(binding), binding["spec"]["reference"]["export"]["name"]
    for item in status.get("boundResources") or ():
        schema = item["schema"]
        yield RequiredCrd(str(status.get("apiExportClusterName") or ""), export, schema["name"], schema["UID"])


def bound_crd(schema: Object, cluster: str, export: str, now: str) -> Object:
    """Build the bound CRD of an APIResourceSchema of a cluster, first bound through `export`, established at `now`."""
    metadata, spec = schema["metadata"], schema["spec"]
    names = {**spec["names"], "listKind": names_of(spec["names"]).list_kind}
    versions = [_version(version) for version in spec["versions"]]
    stored = [version["name"] for version in versions if version["storage"]]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": metadata["uid"], "annotations": _annotations(schema, cluster, export)},
        "spec": {
            "group": spec["group"],
            "names": names,
            "scope": spec["scope"],
            "versions": versions,
            "conversion": spec.get("conversion") or {"strategy": "None"},
        },
        "status": {"acceptedNames": names, "conditions": established(now), "storedVersions": stored},
    }


def exports_of(crd: Object) -> list[str]:
    """Return the names of the exports through which a bound CRD was bound, in its schema's cluster."""
    return [name for name in annotations_of(crd).get(EXPORTS, "").split(",") if name]


def policed_of(crd: Object) -> list[str]:
    """Return the names of its remote exports with a maximal permission policy."""
    return [name for name in annotations_of(crd).get(POLICED, "").split(",") if name]


def with_policed(crd: Object, export: str, *, policed: bool) -> Object:
    """Return the bound CRD with an export added to, or removed from, those; the same object without a change."""
    known = policed_of(crd)
    if policed == (export in known):
        return crd
    left = [*known, export] if policed else [name for name in known if name != export]
    metadata = crd["metadata"]
    annotations = dict(annotations_of(crd))
    annotations.pop(POLICED, None)
    if left:
        annotations[POLICED] = ",".join(left)
    return {**crd, "metadata": {**metadata, "annotations": annotations}}


def source_of(crd: Object) -> tuple[str, str]:
    """Return cluster and name of the schema of a bound CRD; both empty for any other CRD."""
    annotations = annotations_of(crd)
    return annotations.get(SCHEMA_CLUSTER, ""), annotations.get(SCHEMA_NAME, "")


def with_export(crd: Object, export: str) -> Object:
    """Return the bound CRD with one more export and without the collection mark."""
    known = exports_of(crd)
    listed = known if export in known else [*known, export]
    metadata = crd["metadata"]
    annotations = {**annotations_of(crd), EXPORTS: ",".join(listed)}
    annotations.pop(COLLECTED, None)
    return {**crd, "metadata": {**metadata, "annotations": annotations}}


def with_collection_mark(crd: Object) -> Object:
    """Return the bound CRD marked for collection; a new binding removes the mark."""
    metadata = crd["metadata"]
    return {**crd, "metadata": {**metadata, "annotations": {**annotations_of(crd), COLLECTED: ""}}}


def established(now: str) -> list[Object]:
    """Return the conditions of a CRD whose names cannot conflict."""
    said = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    return [
        {"type": type, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for type, reason, message in said
    ]


def _version(version: Object) -> Object:
    found = {field: version[field] for field in VERSION_FIELDS if field in version}
    # Versions of APIResourceSchemas are served by default, unlike those of CRDs.
    return {**found, "served": found.get("served", True), "schema": {"openAPIV3Schema": version["schema"]}}


def _annotations(schema: Object, cluster: str, export: str) -> dict[str, str]:
    metadata = schema["metadata"]
    annotations = {BOUND: "", SCHEMA_CLUSTER: cluster, SCHEMA_NAME: metadata["name"], EXPORTS: export}
    if schema["spec"].get("nameValidation") == "PathSegmentName":
        annotations[wellknown.VALIDATE_NAME] = PATH_SEGMENT
    approval = annotations_of(schema).get(wellknown.API_APPROVED)
    return {**annotations, wellknown.API_APPROVED: approval} if approval is not None else annotations
