"""How another shard is asked whether a service account still stands, and the Secret that its token is bound to.

`app` gives it to authentication where this shard can call others. Two GETs as `external-logical-cluster-admin`, whom
kcp's bootstrap lets read both for this very purpose. Invariant: anything but the objects themselves is no answer.
"""

from __future__ import annotations

from atoll.machinery.apiserver.authentication.remote_service_accounts import RemoteServiceAccounts, ShardUnreachable
from atoll.machinery.apiserver.authentication.service_account_claims import Subject
from atoll.machinery.apiserver.authentication.service_accounts import holds_token, is_account
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound
from atoll.replication.peers import EXTERNAL_LOGICAL_CLUSTER_ADMIN, PEER_ERRORS, Peers

_ACCOUNTS, _SECRETS = Resource("", "v1", "serviceaccounts"), Resource("", "v1", "secrets")


def foreign_accounts(peers: Peers | None) -> RemoteServiceAccounts:
    """Return the checks of accounts of other shards. Without `peers` none of them can be checked."""

    async def ask(shard: str, subject: Subject, token: str) -> bool:
        if peers is None:
            raise ShardUnreachable("this shard calls no others")
        try:
            return await _stands(peers.client(shard, EXTERNAL_LOGICAL_CLUSTER_ADMIN), subject, token)
        except PEER_ERRORS as error:
            raise ShardUnreachable(str(error)) from error

    return RemoteServiceAccounts(ask)


async def _stands(client: Client, subject: Subject, token: str) -> bool:
    there = client.cluster(subject.cluster)
    if not is_account(await _get(there, _ACCOUNTS, subject.name, subject.namespace), subject):
        return False
    if subject.secret is None:
        return True
    return holds_token(await _get(there, _SECRETS, subject.secret.name, subject.namespace), subject, token)


async def _get(there: Client, resource: Resource, name: str, namespace: str) -> Object | None:
    try:
        return await there.get(resource, name, namespace)
    except NotFound:
        return None
