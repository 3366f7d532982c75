"""The account of a syncer in its mailbox: a service account, the role that opens the mailbox's view, a token."""

from __future__ import annotations

import sys
from contextlib import suppress

import msgspec

from atoll.cli.kubectl.plugin import Failure
from atoll.edge.objects import NAMESPACES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from atoll.machinery.client.client import Client
from atoll.machinery.edge.names import GROUP
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Forbidden
from atoll.machinery.meta.wellknown import RBAC_GROUP

ACCOUNT, ROLE = "syncer", "edge-syncer"
RULES: list[Object] = [{"apiGroups": [GROUP], "resources": ["syncerconfigs"], "verbs": ["sync"]}]


class Account(msgspec.Struct, frozen=True):
    """What flags say of the account: its namespace in the mailbox, its labels, the life of its token in seconds."""

    namespace: str
    labels: dict[str, str]
    lifetime_s: float


async def ensure(client: Client, wanted: Account, *, silent: bool) -> str:
    """Create or repair account and role in a mailbox; return a new token. Raises Failure, ApiError."""

    def tell(text: str) -> None:
        if not silent:
            sys.stderr.write(text + "\n")

    metadata = {"name": ACCOUNT, "namespace": wanted.namespace}
    labelled = {**metadata, "labels": wanted.labels}
    try:
        tell(f'Creating service account "{ACCOUNT}"')
        with suppress(AlreadyExists):
            await client.create(NAMESPACES, _object("Namespace", {"name": wanted.namespace}))
        await client.apply(SERVICE_ACCOUNTS, _object("ServiceAccount", labelled))
        tell(f'Creating cluster role "{ROLE}" to give service account "{ACCOUNT}"\n\n 1. view of its mailbox\n')
        await client.apply(ROLES, _role())
        tell(
            f'Creating or updating cluster role binding "{ROLE}" to bind service account "{ACCOUNT}"'
            f' to cluster role "{ROLE}".'
        )
        await client.apply(ROLE_BINDINGS, _binding(metadata))
        return await _token(client, wanted.namespace, wanted.lifetime_s)
    except Forbidden as error:
        raise Failure(f"{error}\nTo register an edge cluster takes an administrator of its mailbox.") from error


def _object(kind: str, metadata: Object) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def _role() -> Object:
    metadata = {"name": ROLE}
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": RULES}


def _binding(account: Object) -> Object:
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }


async def _token(client: Client, namespace: str, lifetime_s: float) -> str:
    path = SERVICE_ACCOUNTS.path(namespace, ACCOUNT, "token")
    spec = {"expirationSeconds": int(lifetime_s)}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str((await client.request("POST", path, body=body))["status"]["token"])
