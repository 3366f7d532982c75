"""Identities of exports and cached resources: their Secrets are created, referenced and verified.

The controllers of both kinds call this with the batch that writes the object. Invariant: the object and its Secret are
stored together.
"""

from __future__ import annotations

from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.apis import apiexports
from atoll.machinery.meta import times
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, status_of
from atoll.machinery.meta.types import NAMESPACES, SECRETS


def with_identity(loopback: Loopback, batch: Batch, cluster: str, obj: Object) -> Object:
    """Return the object with the reference to its Secret and a verified identity; create the Secret if none is named.

    An existing Secret of the name is used, as in kcp, even if it is older.
    """
    reference = apiexports.secret_reference(obj)
    if reference is None:
        reference = apiexports.generated_reference(obj)
        if batch.get(ObjectKey(NAMESPACES, cluster, "", reference.namespace)) is None:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": reference.namespace}}
            target = builtin_target(loopback, NAMESPACES, cluster, reference.namespace)
            batch.create(target, namespace, whole=False)
        if batch.get(ObjectKey(SECRETS, cluster, *reference)) is None:
            target = builtin_target(loopback, SECRETS, cluster, reference.name, reference.namespace)
            batch.create(target, apiexports.new_secret(reference), whole=False)
        obj = apiexports.with_reference(obj, reference)
    record = batch.get(ObjectKey(SECRETS, cluster, *reference))
    secret = decode(record.value) if record is not None else None
    return {**obj, "status": apiexports.with_verified_identity(status_of(obj), secret, reference, times.now())}


def builtin_target(loopback: Loopback, type: ResourceType, cluster: str, name: str, namespace: str = "") -> Target:
    """Return the target of an object of a built-in type."""
    return Target(loopback.core.catalogs.builtin(type), cluster, namespace, name)
