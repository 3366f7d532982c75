"""The APIExports of root: APIResourceSchemas built from our CustomResourceDefinitions, exports and identities.

Bootstrap writes these objects into root; bindings in root, system:shard and every universal workspace refer to them.
Names of schemas are kcp's (`schemas/bootstrap/exports.yaml`). Invariant: an identity is the hash of a secret key that
is generated at the first start and never changes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import msgspec

from atoll.machinery.kcp.apis import kubernetes_export
from atoll.machinery.kcp.apis.apibindings import BoundResource, Export
from atoll.machinery.kcp.apis.bound_crds import bound_crd, established, with_policed
from atoll.machinery.kcp.apis.naming_conflicts import names_of
from atoll.machinery.kcp.manifest import Manifest, ObjectStamp
from atoll.machinery.kcp.namespaces import KCP_SYSTEM
from atoll.machinery.kcp.schema_files import bootstrap_file, definition
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ROOT, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_EXPORTS, API_RESOURCE_SCHEMAS, CRDS, SECRETS

#: Data key of an identity secret.
IDENTITY_KEY = "key"


def root_exports() -> tuple[str, ...]:
    """Return the names of the APIExports that bootstrap writes into root."""
    return (*bootstrap_file("exports")["exports"], kubernetes_export.EXPORT)


class ExportIdentity(msgspec.Struct, frozen=True):
    """An export's identity: its hash, and its key if the Secret is not written yet (else empty)."""

    hash: str
    key: str = ""


def new_identity(key: str = "") -> ExportIdentity:
    """Return the identity of `key`, or of a newly generated key if it is empty."""
    key = key or hashes.new_identity_key()
    return ExportIdentity(hashes.identity_hash(key.encode()), key)


def exported_type(name: str, identities: Mapping[str, ExportIdentity]) -> ResourceType:
    """Return the type under which objects of a root export's kind are stored; `name` is `<plural>.<group>`.

    Raises KeyError for a kind that root does not export.
    """
    resource, _, group = name.partition(".")
    for export, offer in bootstrap_file("exports")["exports"].items():
        if name in offer["resources"]:
            return ResourceType(group, resource, identities[export].hash)
    raise KeyError(name)


def schemas(stamp: ObjectStamp) -> Iterator[Manifest]:
    """Yield the APIResourceSchemas of root, including those that belong to no export."""
    for name, prefix in bootstrap_file("exports")["schemas"].items():
        yield Manifest(stamp.cluster, _schema(stamp, name, prefix), API_RESOURCE_SCHEMAS, reconciled=True)


def exports(stamp: ObjectStamp, identities: Mapping[str, ExportIdentity]) -> Iterator[Manifest]:
    """Yield, for each export, its identity Secret if it is not written yet, then the APIExport."""
    offers = bootstrap_file("exports")["exports"]
    resources = {name: [_offered(each) for each in offer["resources"]] for name, offer in offers.items()}
    for name, offered in {**resources, kubernetes_export.EXPORT: kubernetes_export.offered()}.items():
        identity = identities[name]
        if identity.key:
            yield Manifest(stamp.cluster, _secret(stamp, name, identity.key), SECRETS)
        export = _export(stamp, name, offered, identity)
        if offers.get(name, {}).get("limited"):
            export["spec"]["maximalPermissionPolicy"] = {"local": {}}
        yield Manifest(stamp.cluster, export, API_EXPORTS, reconciled=True)


def bindable(root: ObjectStamp, identities: Mapping[str, ExportIdentity]) -> dict[str, Export]:
    """Return root's exports by name, for building bindings. `root` is the stamp that `schemas` was called with."""
    return {
        name: Export(
            cluster=ROOT,
            name=name,
            identity=identities[name].hash,
            resources=tuple(_bound_resource(root, resource) for resource in offer["resources"]),
        )
        for name, offer in bootstrap_file("exports")["exports"].items()
    }


def bound(root: ObjectStamp, stamp: ObjectStamp, *, root_is_remote: bool = False) -> Iterator[Manifest]:
    """Return the bound CRDs of root's exports. `stamp` is that of the cluster of bound CRDs.

    `root_is_remote`: root lies on another shard; its maximal permission policies are enforced even before its rows
    arrive.
    """
    for export, offer in bootstrap_file("exports")["exports"].items():
        for name in offer["resources"]:
            schema = _schema(root, name, bootstrap_file("exports")["schemas"][name])
            crd = bound_crd(schema, root.cluster, export, stamp.now)
            crd = with_policed(crd, export, policed=root_is_remote and bool(offer.get("limited")))
            metadata = crd["metadata"]
            stamped = stamp.metadata("customresourcedefinitions", metadata["name"], annotations=metadata["annotations"])
            yield Manifest(stamp.cluster, {**crd, "metadata": stamped}, CRDS, reconciled=True)


def definitions(stamp: ObjectStamp) -> Iterator[Manifest]:
    """Yield the CustomResourceDefinitions of the kinds that every logical cluster serves, with status Established."""
    for name in bootstrap_file("exports")["system"]:
        source = definition(name)
        obj = {
            "apiVersion": source["apiVersion"],
            "kind": source["kind"],
            "metadata": stamp.metadata("customresourcedefinitions", name),
            "spec": {**source["spec"], "conversion": {"strategy": "None"}},
            "status": {
                "acceptedNames": source["spec"]["names"],
                "conditions": established(stamp.now),
                "storedVersions": [_storage_version(source)],
            },
        }
        yield Manifest(stamp.cluster, obj, CRDS, reconciled=True)


def schema_name(name: str) -> str:
    """Return the name of the APIResourceSchema in root for `<plural>.<group>`."""
    return f"{bootstrap_file('exports')['schemas'][name]}.{name}"


def _schema(stamp: ObjectStamp, name: str, prefix: str) -> Object:
    spec = definition(name)["spec"]
    fields = ("name", "served", "storage", "subresources", "additionalPrinterColumns")
    versions = [
        {
            **{field: version[field] for field in fields if field in version},
            "schema": version["schema"]["openAPIV3Schema"],
        }
        for version in spec["versions"]
    ]
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIResourceSchema",
        "metadata": stamp.metadata("apiresourceschemas", f"{prefix}.{name}"),
        "spec": {
            "group": spec["group"],
            "names": spec["names"],
            "scope": spec["scope"],
            "nameValidation": "DNS1123Subdomain",
            "versions": versions,
        },
    }


def _secret(stamp: ObjectStamp, name: str, key: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": stamp.metadata("secrets", name, KCP_SYSTEM),
        "type": "Opaque",
        "data": {IDENTITY_KEY: base64.b64encode(key.encode()).decode()},
    }


def _export(stamp: ObjectStamp, name: str, offered: list[Object], identity: ExportIdentity) -> Object:
    spec: Object = {"identity": {"secretRef": {"name": name, "namespace": KCP_SYSTEM}}, "resources": offered}
    return {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIExport",
        "metadata": stamp.pathed_metadata("apiexports", name),
        "spec": spec,
        # For an existing Secret the export controller sets condition IdentityValid.
        "status": {
            "identityHash": identity.hash,
            **({"conditions": stamp.holds(("IdentityValid",))} if identity.key else {}),
        },
    }


def _offered(name: str) -> Object:
    resource, _, group = name.partition(".")
    return {"name": resource, "group": group, "schema": schema_name(name), "storage": {"crd": {}}}


def _bound_resource(stamp: ObjectStamp, name: str) -> BoundResource:
    resource, _, group = name.partition(".")
    schema = schema_name(name)
    uid = stamp.uid_of("apiresourceschemas", schema)
    source = definition(name)
    return BoundResource(group, resource, schema, uid, _storage_version(source), names_of(source["spec"]["names"]))


def _storage_version(source: Object) -> str:
    name: str = next(version["name"] for version in source["spec"]["versions"] if version["storage"])
    return name
