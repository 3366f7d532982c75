"""Authorities, certificates, kubeconfigs and NATS users of a site: made at the first start, kept, renewed when due.

Three authorities, as in kcp: one for users and components (their groups say what they may), one for those who may speak
for users, one for what servers present. Nobody is given more than it needs: a shard has no proxy's certificate but its
own, the proxy none of an administrator. Invariants: files are 0600 from the moment they exist; an authority is never
replaced, as others hold on to it.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

from atoll.machinery.apiserver.authorization.groups import (
    EXTERNAL_LOGICAL_CLUSTER_ADMIN,
    KCP_ADMIN,
    LOGICAL_CLUSTER_ADMIN,
)
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.user import MASTERS
from atoll.machinery.process import pki
from atoll.machinery.process.listening import serving_names
from atoll.machinery.process.pki import Pair, write_private
from atoll.machinery.stream.credential_file import NatsCredential, write_credential
from atoll.machinery.stream.permissions import inbox_prefix, reader_permissions, shard_permissions, shard_user
from atoll.machinery.stream.server.config import NatsUser
from atoll.replication import peers
from atoll.shard import kubeconfig
from atoll.standalone.site.layout import PROXY, Layout

CLIENT_CA, PROXY_CA, SERVING_CA = "client-ca", "requestheader-ca", "serving-ca"
ACCOUNT_KEY = "service-account"
#: NATS users of who only reads: the front proxy, and a cache server, if an operator starts one.
PROXY_USER, CACHE_USER = "proxy-0", "cache-0"
#: Files of kubeconfigs: how shards reach the root shard, and as whom they act on each other.
ROOT_SHARD = "root-shard"
_SHARDS_ADMIN = {
    peers.LOGICAL_CLUSTER_ADMIN: LOGICAL_CLUSTER_ADMIN,
    peers.EXTERNAL_LOGICAL_CLUSTER_ADMIN: EXTERNAL_LOGICAL_CLUSTER_ADMIN,
}


class Authorities(msgspec.Struct, frozen=True):
    """The three authorities of a site."""

    clients: Pair
    proxies: Pair
    serving: Pair


def authorities(layout: Layout) -> Authorities:
    """Those of a site, made on first use. Raises PkiError, OSError."""
    return Authorities(
        pki.ca_in(layout.pki, CLIENT_CA, "atoll client CA"),
        pki.ca_in(layout.pki, PROXY_CA, "atoll request header CA"),
        pki.ca_in(layout.pki, SERVING_CA, "atoll serving CA"),
    )


def write_all(layout: Layout, shards: Sequence[str], bind_address: str, urls: dict[str, str]) -> list[NatsUser]:
    """Write what the processes of a site are given; gives the users of its NATS server.

    `urls` are the base URLs of shards and proxy by name. Raises PkiError, KubeconfigError, OSError.
    """
    given = authorities(layout)
    write_private(layout.account_key, pki.public_key_pem(pki.rsa_key_in(layout.key(ACCOUNT_KEY))))
    for name in (*shards, PROXY):
        pki.serving_in(layout.pki, f"serving-{name}", given.serving, serving_names(bind_address))
        # Who holds one of these may speak for users: a proxy, and a shard that asks another's virtual workspace.
        pki.client_in(layout.pki, f"proxy-{name}", given.proxies, name)
    for name in shards[1:]:
        _component(layout, given, f"{ROOT_SHARD}-{name}", urls[ROOT], (f"shard-{name}", MASTERS))
    for name, group in _SHARDS_ADMIN.items():
        _component(layout, given, name, urls[PROXY], (name, group))
    _admin(layout, given, urls)
    return nats_users(layout.pki, shards, (PROXY_USER, CACHE_USER))


def client_pair(layout: Layout, given: Authorities, user: str, *groups: str) -> Pair:
    """The certificate of a user of this site, made on first use. Raises PkiError, OSError."""
    return pki.client_in(layout.pki, user, given.clients, user, groups)


def _component(layout: Layout, given: Authorities, file: str, url: str, who: tuple[str, str]) -> None:
    """A kubeconfig that names one server and one user. kcp's shards look for the context `shard-base`."""
    user, group = who
    pair = client_pair(layout, given, user, group)
    names = ("base", kubeconfig.SHARD_BASE)
    document: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [_cluster("base", url, given.serving)],
        "users": [_user(user, pair)],
        "contexts": [{"name": name, "context": {"cluster": "base", "user": user}} for name in names],
        "current-context": "base",
    }
    write_private(layout.kubeconfig(file), yaml.safe_dump(document, sort_keys=False).encode())


def _admin(layout: Layout, given: Authorities, urls: dict[str, str]) -> None:
    """admin.kubeconfig: people come by the proxy. What no proxy lets through, the masters of a shard and its system
    clusters, goes to the root shard itself."""
    proxy, root = urls[PROXY], urls[ROOT]
    servers = {
        ROOT: f"{proxy}/clusters/{ROOT}",
        "base": proxy,
        "system:admin": f"{root}/clusters/system:admin",
        kubeconfig.SHARD_BASE: root,
    }
    users = {
        "kcp-admin": client_pair(layout, given, "kcp-admin", KCP_ADMIN),
        "shard-admin": client_pair(layout, given, "shard-admin", MASTERS),
    }
    contexts = {ROOT: "kcp-admin", "base": "kcp-admin", "system:admin": "shard-admin", "shard-base": "shard-admin"}
    document: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [_cluster(name, url, given.serving) for name, url in servers.items()],
        "users": [_user(name, pair) for name, pair in users.items()],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}} for name, user in contexts.items()],
        "current-context": ROOT,
    }
    kubeconfig.bring_up_to_date(layout.root / kubeconfig.FILE_NAME, document)


def _cluster(name: str, url: str, authority: Pair) -> Object:
    return {"name": name, "cluster": {"server": url, "certificate-authority-data": _base64(authority.certificate)}}


def _user(name: str, pair: Pair) -> Object:
    data = {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}
    return {"name": name, "user": data}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def nats_users(directory: Path, shards: Sequence[str], readers: Sequence[str], ca_file: str = "") -> list[NatsUser]:
    """Users for shards and for who only reads, each with its credential file `nats-<user>.json` in a directory.

    Passwords of an earlier call stay. Raises OSError.
    """
    permissions = {shard_user(name): shard_permissions(name) for name in shards}
    permissions |= {user: reader_permissions(user) for user in readers}
    return [NatsUser(user, _password(directory, user, ca_file), may) for user, may in permissions.items()]


def _password(directory: Path, user: str, ca_file: str) -> str:
    path = directory / f"nats-{user}.json"
    try:
        password = msgspec.json.decode(path.read_bytes(), type=NatsCredential).password
    except (FileNotFoundError, msgspec.DecodeError):
        password = secrets.token_urlsafe(32)
    write_credential(path, NatsCredential(user, password, inbox_prefix(user), ca_file))
    return password
