"""First start and every start: what must exist before a shard serves.

The composition root calls `apply` with the manifests of `machinery.kcp.bootstrap`. What exists is left to its users,
except manifests marked as reconciled, which are brought back into shape. Everything is planned and admitted like
any write, in batches; a start without news writes nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from atoll.machinery.apiserver.loopback import Batch, Loopback, Target
from atoll.machinery.kcp import exports
from atoll.machinery.kcp.namespaces import KCP_SYSTEM
from atoll.machinery.kcp.reconcile import reconciled
from atoll.machinery.kcp.shapes import Manifest
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import SECRETS
from atoll.machinery.storage.contract import Store

BATCH = 200


def identity_keys(store: Store) -> Mapping[str, str]:
    """The secret keys of root's exports: those that the store holds, fresh ones for exports that are new."""
    keys = exports.new_identity_keys()
    with store.snapshot() as snapshot:
        for name in keys:
            record = snapshot.get(ObjectKey(SECRETS, ROOT, KCP_SYSTEM, name))
            if record is not None:
                keys[name] = base64.b64decode(decode(record.value)["data"][exports.IDENTITY_KEY]).decode()
    return keys


async def apply(loopback: Loopback, manifests: Iterable[Manifest]) -> int:
    """Write what is missing or out of shape; gives the number of objects written."""
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
    """The kind by its type: the base catalogue's, or what the cluster's own bindings serve."""
    kind: Kind | None = loopback.core.catalogs.base.of_type(manifest.type)
    if kind is None:
        kind = loopback.core.catalogs.of(batch, manifest.cluster).of_type(manifest.type)
    assert kind is not None, f"bootstrap writes {manifest.type} before the cluster serves it"
    metadata = manifest.object["metadata"]
    return Target(kind, manifest.cluster, metadata.get("namespace", ""), metadata["name"])
