"""Bootstrap: the objects that must exist before a shard serves, written at each start.

The composition root calls `apply` with the manifests of `machinery.kcp.bootstrap`. Existing objects are not changed,
except those of manifests marked as reconciled. Writes are planned and admitted like any other, in batches. Invariant: a
start without changes writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.apis import root_exports
from atoll.machinery.kcp.apis.apiexports import NoIdentity, SecretReference, identity_of
from atoll.machinery.kcp.apis.root_exports import ExportIdentity
from atoll.machinery.kcp.bootstrap.reconcile import reconciled
from atoll.machinery.kcp.manifest import Manifest
from atoll.machinery.kcp.namespaces import KCP_SYSTEM
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ROOT, SYSTEM_BOUND_CRDS, ObjectKey
from atoll.machinery.meta.objects import Object, decode, status_of
from atoll.machinery.meta.types import API_EXPORTS, CRDS, SECRETS
from atoll.machinery.storage.contract import Snapshot, Store
from atoll.tenancy.bound_definitions import target_of

BATCH = 200


def identities(store: Store) -> dict[str, ExportIdentity]:
    """Return the identities of root's exports: from the export's status, else from its Secret, else new ones.

    The status takes precedence over the Secret: the objects of every workspace are stored under these identities, so
    a changed Secret must not change them.
    """
    with store.snapshot() as snapshot:
        return {name: _identity(snapshot, name) for name in root_exports.root_exports()}


def _identity(snapshot: Snapshot, name: str) -> ExportIdentity:
    export = snapshot.get(ObjectKey(API_EXPORTS, ROOT, "", name))
    if export is not None and (known := status_of(decode(export.value)).get("identityHash")):
        return ExportIdentity(known)
    reference = SecretReference(KCP_SYSTEM, name)
    secret = snapshot.get(ObjectKey(SECRETS, ROOT, *reference))
    try:
        return ExportIdentity(identity_of(decode(secret.value) if secret is not None else None, reference))
    except NoIdentity:
        return root_exports.new_identity()


async def apply(loopback: Loopback, manifests: Iterable[Manifest]) -> int:
    """Write missing and changed objects; return the number of objects written."""
    batch, written = loopback.batch(), 0
    for manifest in manifests:
        written += _add(loopback, batch, manifest)
        if len(batch) >= BATCH:
            await batch.submit()
            batch = loopback.batch()
    await batch.submit()
    return written


def _add(loopback: Loopback, batch: Batch, manifest: Manifest) -> bool:
    record = batch.get(manifest.key)
    if record is None:
        batch.create(_target(loopback, batch, manifest), manifest.object)
        return True
    wanted: Object | None = reconciled(decode(record.value), manifest.object) if manifest.reconciled else None
    if wanted is None:
        return False
    batch.update(_target(loopback, batch, manifest), wanted, whole=True)
    return True


def _target(loopback: Loopback, batch: Batch, manifest: Manifest) -> Target:
    """Return the write target: a kind of the base catalog, else one that the cluster's bindings serve."""
    if manifest.cluster == SYSTEM_BOUND_CRDS and manifest.type == CRDS:
        return target_of(manifest.key.name)
    kind: Kind | None = loopback.core.catalogs.base.of_type(manifest.type)
    if kind is None:
        kind = loopback.core.catalogs.of(batch, manifest.cluster).of_type(manifest.type)
    assert kind is not None, f"bootstrap writes {manifest.type} before the cluster serves it"
    metadata = manifest.object["metadata"]
    return Target(kind, manifest.cluster, metadata.get("namespace", ""), metadata["name"])
