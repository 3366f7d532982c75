"""Secrets of type kubernetes.io/service-account-token: fill them for their ServiceAccount, delete them after it.

Watches: Secrets and ServiceAccounts. Writes: `token`, `ca.crt`, `namespace` and the annotation with the account's uid;
deletes Secrets whose account does not exist or has another uid. Converges because a Secret is compared with its desired
content each time; an existing token is never replaced.
"""

from __future__ import annotations

import base64
from collections.abc import Hashable, Iterable

import msgspec

from atoll.machinery.apiserver.authentication.token_issuer import Account, TokenIssuer
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.kinds.core.secrets import SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_TOKEN
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.status import Conflict, Forbidden, NotFound
from atoll.machinery.meta.types import SECRETS, SERVICE_ACCOUNTS
from atoll.machinery.storage.contract import LogEntry, Operation, Scope

SERVICE_ACCOUNT_UID = "kubernetes.io/service-account.uid"
TOKEN, ROOT_CA, NAMESPACE = "token", "ca.crt", "namespace"


class Place(msgspec.Struct, frozen=True):
    """One Secret; with an empty name, every token Secret of a namespace whose accounts changed."""

    cluster: str
    namespace: str
    name: str


class AccountTokens(Controller):
    """Key: Place."""

    name = "serviceaccounttokens"
    workers = 2

    def __init__(self, loopback: Loopback, secrets: Kind, issuer: TokenIssuer, certificate: str) -> None:
        self._loopback, self._secrets, self._issuer = loopback, secrets, issuer
        self._certificate = base64.b64encode(certificate.encode()).decode()

    def watches(self, type: ResourceType) -> bool:
        return type in {SECRETS, SERVICE_ACCOUNTS}

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == SERVICE_ACCOUNTS:
            if entry.operation is Operation.DELETED:
                yield Place(key.cluster, key.namespace, "")
        elif entry.operation is not Operation.DELETED:
            # A sealed entry does not show the Secret's type; most keys are dropped after one read.
            yield Place(key.cluster, key.namespace, key.name)

    def all_keys(self) -> Iterable[Hashable]:
        for secret in self._loopback.each(Scope(SECRETS)):
            if _is_token(secret):
                metadata = secret["metadata"]
                yield Place(metadata["annotations"][wellknown.CLUSTER], metadata["namespace"], metadata["name"])

    async def reconcile(self, key: Place) -> float | None:
        if key.name:
            found = self._loopback.get(SECRETS, key.cluster, key.namespace, key.name)
            if found is not None and _is_token(found):
                await self._reconcile_secret(key, found)
            return None
        for secret in list(self._loopback.each(Scope(SECRETS, key.cluster, key.namespace))):
            if _is_token(secret):
                await self._reconcile_secret(Place(key.cluster, key.namespace, secret["metadata"]["name"]), secret)
        return None

    async def _reconcile_secret(self, place: Place, secret: Object) -> None:
        metadata = secret["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        annotations = annotations_of(secret)
        name, uid = annotations.get(SERVICE_ACCOUNT_NAME, ""), annotations.get(SERVICE_ACCOUNT_UID, "")
        account = self._loopback.get(SERVICE_ACCOUNTS, place.cluster, place.namespace, name)
        target = Target(self._secrets, place.cluster, place.namespace, place.name)
        try:
            if account is None or (uid and uid != account["metadata"]["uid"]):
                await self._loopback.delete(target, DeleteOptions(uid=metadata["uid"]))
            elif not account["metadata"].get("deletionTimestamp"):
                owner = Account(place.cluster, place.namespace, name, account["metadata"]["uid"])
                await self._fill(target, secret, owner)
        except (Conflict, NotFound, Forbidden):
            # The Secret changed or was deleted, or its namespace is terminating: that log entry enqueues the key.
            return

    async def _fill(self, target: Target, secret: Object, account: Account) -> None:
        data = dict(secret.get("data") or {})
        data[ROOT_CA] = self._certificate
        data[NAMESPACE] = base64.b64encode(account.namespace.encode()).decode()
        if not data.get(TOKEN):
            data[TOKEN] = base64.b64encode(self._issuer.legacy(account, target.name).encode()).decode()
        metadata = secret["metadata"]
        annotations = {**metadata["annotations"], SERVICE_ACCOUNT_UID: account.uid}
        changed = {**secret, "data": data, "metadata": {**metadata, "annotations": annotations}}
        if changed != secret:
            await self._loopback.update(target, changed)


def _is_token(secret: Object) -> bool:
    return bool(secret.get("type") == SERVICE_ACCOUNT_TOKEN)
