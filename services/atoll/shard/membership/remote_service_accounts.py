"""Validation of service accounts of other shards: the account, and the Secret that its token is bound to, must exist.

`app` passes it to authentication. It sends two GETs to the other shard as `external-logical-cluster-admin`; kcp's
bootstrap grants that user `get` on both kinds for this purpose. Invariant: only the objects or NotFound are an answer;
any other error means that the shard is unreachable.
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


def remote_accounts(peers: Peers | None) -> RemoteServiceAccounts:
    """Return the validation of accounts of other shards. Without `peers` every check raises ShardUnreachable."""

    async def validate(shard: str, subject: Subject, token: str) -> bool:
        if peers is None:
            raise ShardUnreachable("this shard calls no others")
        try:
            return await _exists(peers.client(shard, EXTERNAL_LOGICAL_CLUSTER_ADMIN), subject, token)
        except PEER_ERRORS as error:
            raise ShardUnreachable(str(error)) from error

    return RemoteServiceAccounts(validate)


async def _exists(client: Client, subject: Subject, token: str) -> bool:
    remote = client.cluster(subject.cluster)
    if not is_account(await _get(remote, _ACCOUNTS, subject.name, subject.namespace), subject):
        return False
    if subject.secret is None:
        return True
    return holds_token(await _get(remote, _SECRETS, subject.secret.name, subject.namespace), subject, token)


async def _get(remote: Client, resource: Resource, name: str, namespace: str) -> Object | None:
    try:
        return await remote.get(resource, name, namespace)
    except NotFound:
        return None
