"""Bound CustomResourceDefinitions: what consumers are served once they are bound, whatever becomes of the schema.

Whoever binds an APIResourceSchema (the binding controller, workspace building, bootstrap) writes one row for it in the
cluster `system:bound-crds`, named by the schema's uid, in the batch that binds; catalogues read it from there by the
uid in the binding's status. Invariant: a bound CRD is made once and its spec never changes, for neither does a
schema's; so the deletion of a schema, and another one of its name, change nothing for who is bound.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from atoll.machinery.kcp.apis.naming_conflicts import names_of
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import SYSTEM_BOUND_CRDS, ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import CRDS

BOUND = "apis.kcp.io/bound-crd"
SCHEMA_CLUSTER = "apis.kcp.io/schema-cluster"
SCHEMA_NAME = "apis.kcp.io/schema-name"
#: Its value `path-segment` lets objects have any name that fits in a URL; absent: DNS subdomains.
VALIDATE_NAME = "internal.kcp.io/validate-name"
PATH_SEGMENT = "path-segment"
#: Ours: names of the exports through which it was bound, by which its bindings are found in the index.
EXPORTS = "internal.atoll.dev/bound-through"
#: Ours: which of these lie on another shard and carried a maximal permission policy when they were last seen. It is
#: what the authorizer goes by while such an export is not known here.
POLICED = "internal.atoll.dev/policed"
#: Ours: nobody binds it, and it goes unless somebody does first.
COLLECTED = "internal.atoll.dev/collected"

_COPIED = (
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
    """A bound CRD that a binding refers to: where its schema is, by which export, and under which uid it was bound."""

    cluster: str
    export: str
    schema: str
    uid: str

    @property
    def key(self) -> ObjectKey:
        return key_of(self.uid)


def key_of(uid: str) -> ObjectKey:
    """Where the bound CRD of a schema uid stands."""
    return ObjectKey(CRDS, SYSTEM_BOUND_CRDS, "", uid)


def required_crds(binding: Object) -> Iterator[RequiredCrd]:
    """What a binding's status refers to."""
    status, export = binding.get("status") or {}, binding["spec"]["reference"]["export"]["name"]
    for item in status.get("boundResources") or ():
        schema = item["schema"]
        yield RequiredCrd(str(status.get("apiExportClusterName") or ""), export, schema["name"], schema["UID"])


def bound_crd(schema: Object, cluster: str, export: str, now: str) -> Object:
    """The bound CRD of an APIResourceSchema of a cluster, first bound through `export`, established at `now`."""
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
    """Names of the exports through which a bound CRD was bound, in its schema's cluster."""
    return [name for name in (crd["metadata"].get("annotations") or {}).get(EXPORTS, "").split(",") if name]


def policed_of(crd: Object) -> list[str]:
    """Names of those exports elsewhere whose maximal permission policy is known to be in force."""
    return [name for name in (crd["metadata"].get("annotations") or {}).get(POLICED, "").split(",") if name]


def with_policed(crd: Object, export: str, *, policed: bool) -> Object:
    """The bound CRD with an export among those, or not; itself where nothing changes."""
    known = policed_of(crd)
    if policed == (export in known):
        return crd
    left = [*known, export] if policed else [name for name in known if name != export]
    metadata = crd["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(POLICED, None)
    if left:
        annotations[POLICED] = ",".join(left)
    return {**crd, "metadata": {**metadata, "annotations": annotations}}


def source_of(crd: Object) -> tuple[str, str]:
    """Cluster and name of the schema that a bound CRD was made of; both empty for any other CRD."""
    annotations = crd["metadata"].get("annotations") or {}
    return annotations.get(SCHEMA_CLUSTER, ""), annotations.get(SCHEMA_NAME, "")


def with_export(crd: Object, export: str) -> Object:
    """The bound CRD as it is bound through one more export, and not to be collected."""
    known = exports_of(crd)
    listed = known if export in known else [*known, export]
    metadata = crd["metadata"]
    annotations = {**(metadata.get("annotations") or {}), EXPORTS: ",".join(listed)}
    annotations.pop(COLLECTED, None)
    return {**crd, "metadata": {**metadata, "annotations": annotations}}


def with_collection_mark(crd: Object) -> Object:
    """The bound CRD marked as about to go; whoever binds it now takes the mark away."""
    metadata = crd["metadata"]
    return {**crd, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), COLLECTED: ""}}}


def established(now: str) -> list[Object]:
    """Conditions of a definition whose names nobody else can have."""
    said = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    return [
        {"type": type, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for type, reason, message in said
    ]


def _version(version: Object) -> Object:
    found = {field: version[field] for field in _COPIED if field in version}
    # Schemas are wrapped in CRDs, and versions of APIResourceSchemas are served unless they say no.
    return {**found, "served": found.get("served", True), "schema": {"openAPIV3Schema": version["schema"]}}


def _annotations(schema: Object, cluster: str, export: str) -> dict[str, str]:
    metadata = schema["metadata"]
    annotations = {BOUND: "", SCHEMA_CLUSTER: cluster, SCHEMA_NAME: metadata["name"], EXPORTS: export}
    if schema["spec"].get("nameValidation") == "PathSegmentName":
        annotations[VALIDATE_NAME] = PATH_SEGMENT
    approval = (metadata.get("annotations") or {}).get(wellknown.API_APPROVED)
    return {**annotations, wellknown.API_APPROVED: approval} if approval is not None else annotations
