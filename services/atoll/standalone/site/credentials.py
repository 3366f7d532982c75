"""CAs, certificates, kubeconfigs and NATS users of a site: made at the first start, kept, renewed when due.

`runner` calls `write_all`, `certificates` its parts for processes on several machines. Three CAs, as in kcp: the client
CA (users and components, with their rights in groups), the request-header CA (proxies that name users in headers) and
the serving CA. Each process gets only what it needs: a shard has one proxy certificate of its own, the proxy has no
administrator's. Invariants: files are created with mode 0600; a CA is replaced by the steps of `process.signer` alone,
as clients trust it.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import yaml
from cryptography import x509

from atoll.machinery.apiserver.authorization.groups import (
    EXTERNAL_LOGICAL_CLUSTER_ADMIN,
    KCP_ADMIN,
    LOGICAL_CLUSTER_ADMIN,
)
from atoll.machinery.kcp.bootstrap import batteries
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.user import MASTERS
from atoll.machinery.process import pki, revocation
from atoll.machinery.process.listen_address import serving_names
from atoll.machinery.process.private_files import Pair, PkiError, write_private
from atoll.machinery.process.signer import Signer
from atoll.machinery.storage.environment.filesystem import DATA_FILE
from atoll.machinery.stream.credential_file import PLAIN, NatsCredential, Reach, write_credential
from atoll.machinery.stream.event_keys import EventKeys, SigningKey, new_key
from atoll.machinery.stream.permissions import (
    IMPORTED_API,
    OWN_API,
    Permissions,
    changes_permissions,
    inbox_prefix,
    reader_permissions,
    reader_user,
    shard_permissions,
    shard_user,
)
from atoll.machinery.stream.server.cluster import ROUTE_USER
from atoll.machinery.stream.server.config import NatsUser
from atoll.replication import peers
from atoll.shard import kubeconfig
from atoll.shard.config import ShardConfig
from atoll.standalone.site.layout import PROXY, Layout

CLIENT_CA, PROXY_CA, SERVING_CA = "client-ca", "requestheader-ca", "serving-ca"
_COMMON_NAMES = {CLIENT_CA: "atoll client CA", PROXY_CA: "atoll request header CA", SERVING_CA: "atoll serving CA"}
AUTHORITIES = tuple(_COMMON_NAMES)
ACCOUNT_KEY = "service-account"
#: NATS users that only read: the front proxy, and a cache server that an operator may start.
PROXY_USER, CACHE_USER = "proxy-0", "cache-0"
#: Kubeconfig files: of shards for the root shard, and of the identities that shards use on each other.
ROOT_SHARD = "root-shard"
_SHARDS_ADMIN = {
    peers.LOGICAL_CLUSTER_ADMIN: LOGICAL_CLUSTER_ADMIN,
    peers.EXTERNAL_LOGICAL_CLUSTER_ADMIN: EXTERNAL_LOGICAL_CLUSTER_ADMIN,
}


class Authorities(msgspec.Struct, frozen=True):
    """The three CAs of a site. Each certificate is followed by those of CAs that are trusted and do not sign."""

    clients: Pair
    proxies: Pair
    serving: Pair


def authorities(layout: Layout) -> Authorities:
    """The CAs of a site, made on first use, with their revocation lists. Raises PkiError, OSError."""
    clients, proxies, serving = (_authority(layout, name) for name in AUTHORITIES)
    found = Authorities(clients, proxies, serving)
    revoke(layout, found)
    return found


def revoke(layout: Layout, cas: Authorities, certificates: Sequence[bytes] = ()) -> None:
    """Add client certificates (PEM) to the revocation list of the CA whose name they have as issuer.

    Raises PkiError for a certificate of another issuer, and for a list that cannot be read; OSError.
    """
    try:
        found = [x509.load_pem_x509_certificate(pem) for pem in certificates]
        before = layout.revoked.read_bytes() if layout.revoked.exists() else b""
        after = before
        for ca in (cas.clients, cas.proxies):
            after = revocation.added(after, ca, [each for each in found if each.issuer == ca.x509.subject])
    except ValueError as error:
        raise PkiError(f"no certificate, or {layout.revoked} holds no revocation list: {error}") from error
    issuers = {ca.x509.subject for ca in (cas.clients, cas.proxies)}
    if strangers := [each for each in found if each.issuer not in issuers]:
        raise PkiError(f"{strangers[0].subject.rfc4514_string()} is no client certificate of this site")
    if after != before:
        write_private(layout.revoked, after)


def _authority(layout: Layout, name: str) -> Pair:
    signer(layout, name).settle()
    return pki.load_or_make_ca(layout.pki, name, _COMMON_NAMES[name])


def write_all(
    layout: Layout, shards: Sequence[str], config: ShardConfig, urls: dict[str, str], edge: Sequence[str], reach: Reach
) -> list[NatsUser]:
    """Write the credentials of every process of a site; return the users of its NATS server.

    `urls` are the base URLs of shards and proxy by name, `edge` users of edge controllers; `reach` is that of the NATS
    server. Raises PkiError, KubeconfigError, OSError.
    """
    cas = authorities(layout)
    for name in (*shards, PROXY):
        serving_pair(layout, cas, name, serving_names(config.bind_address))
        proxy_pair(layout, cas, name)
    write_shared(layout, cas, shards, urls, config.batteries)
    readers = (PROXY_USER, CACHE_USER)
    return nats_users(layout.pki, shards, readers, reach) + edge_users(layout.pki, shards, edge, reach)


def write_shared(
    layout: Layout, cas: Authorities, shards: Sequence[str], urls: Mapping[str, str], included: Collection[str]
) -> None:
    """Write what does not depend on where a process runs: the service account key, and the kubeconfigs.

    Raises PkiError, KubeconfigError, OSError.
    """
    _write_account_key(layout)
    for name in shards:
        if name != ROOT:
            _component(layout, cas, f"{ROOT_SHARD}-{name}", urls[ROOT], (f"shard-{name}", MASTERS))
    for name, group in _SHARDS_ADMIN.items():
        _component(layout, cas, name, urls[PROXY], (name, group))
    if batteries.ADMIN in included:
        _admin(layout, cas, urls, with_user=batteries.USER in included)


def serving_pair(layout: Layout, cas: Authorities, name: str, names: Sequence[str]) -> None:
    """The serving certificate of a process, made on first use and renewed when due. Raises PkiError, OSError."""
    pki.load_or_make_serving(layout.pki, f"serving-{name}", cas.serving, names)


def peer_pair(layout: Layout, cas: Authorities, name: str, names: Sequence[str]) -> None:
    """The same of a server that connects to others of its kind, too. Raises PkiError, OSError."""
    pki.load_or_make_serving(layout.pki, f"serving-{name}", cas.serving, names, pki.make_peer)


def proxy_pair(layout: Layout, cas: Authorities, name: str) -> None:
    """The certificate whose holder may name users in headers: a proxy, and a shard that calls another shard's virtual
    workspace. Its key stays, as a running proxy signs with it. Raises PkiError, OSError."""
    pki.load_or_make_client(layout.pki, f"proxy-{name}", cas.proxies, name, keeps_key=True)


def signer(layout: Layout, name: str) -> Signer:
    """The files of an authority, or of the service account key."""
    return Signer(layout.pki, name, "pub" if name == ACCOUNT_KEY else "crt")


def make_authority(name: str) -> tuple[bytes, bytes]:
    """A new certificate and key for an authority, or a new service account key: public part and key."""
    if name == ACCOUNT_KEY:
        key = pki.make_rsa_key()
        return pki.public_key_pem(key), key
    pair = pki.make_ca(_COMMON_NAMES[name])
    return pair.certificate, pair.key


def _write_account_key(layout: Layout) -> None:
    """Make the key of service account tokens, and write what verifies them. Raises PkiError, OSError."""
    keys = signer(layout, ACCOUNT_KEY)
    keys.settle()
    public = pki.public_key_pem(_account_key(layout))
    if keys.trusted[:1] != [public]:
        write_private(layout.account_key, public)


def _account_key(layout: Layout) -> bytes:
    """The key that signs service account tokens, made with the site. Raises PkiError, OSError."""
    path = layout.key(ACCOUNT_KEY)
    if not path.exists() and (layout.shard(ROOT) / "store" / DATA_FILE).exists():
        raise PkiError(
            f"{path} is missing: without it no token of a service account is valid; restore it, or put a new RSA key"
            " there and have every token issued again"
        )
    return pki.load_or_make_rsa_key(path)


def client_pair(layout: Layout, cas: Authorities, user: str, *groups: str) -> Pair:
    """The certificate of a user of this site, made on first use. Raises PkiError, OSError."""
    return pki.load_or_make_client(layout.pki, user, cas.clients, user, groups)


def _component(layout: Layout, cas: Authorities, file: str, url: str, identity: tuple[str, str]) -> None:
    """Write a kubeconfig with one server and one user. kcp's shards read the context `shard-base`."""
    user, group = identity
    pair = client_pair(layout, cas, user, group)
    names = ("base", kubeconfig.SHARD_BASE)
    document: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [_cluster("base", url, cas.serving)],
        "users": [_user(user, pair)],
        "contexts": [{"name": name, "context": {"cluster": "base", "user": user}} for name in names],
        "current-context": "base",
    }
    write_private(layout.kubeconfig(file), yaml.safe_dump(document, sort_keys=False).encode())


def _admin(layout: Layout, cas: Authorities, urls: Mapping[str, str], *, with_user: bool) -> None:
    """Write admin.kubeconfig: workspaces through the proxy; `system:masters` and the system clusters, which no proxy
    forwards, at the root shard."""
    proxy, root = urls[PROXY], urls[ROOT]
    servers = {
        ROOT: f"{proxy}/clusters/{ROOT}",
        "base": proxy,
        "system:admin": f"{root}/clusters/system:admin",
        kubeconfig.SHARD_BASE: root,
    }
    users = {
        "kcp-admin": client_pair(layout, cas, "kcp-admin", KCP_ADMIN),
        "shard-admin": client_pair(layout, cas, "shard-admin", MASTERS),
    }
    if with_user:
        users["user"] = client_pair(layout, cas, "user")
    contexts = {ROOT: "kcp-admin", "base": "kcp-admin", "system:admin": "shard-admin", "shard-base": "shard-admin"}
    document: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [_cluster(name, url, cas.serving) for name, url in servers.items()],
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


def nats_users(directory: Path, shards: Sequence[str], readers: Sequence[str], reach: Reach = PLAIN) -> list[NatsUser]:
    """Users of shards and of readers, each with a credential file `nats-<user>.json` in a directory.

    A shard's file holds two users, one that publishes and one that reads the other shards, and the keys that sign its
    events; each file holds the public keys of all shards. Passwords and keys of an earlier call stay. Raises OSError.
    """
    found: list[NatsUser] = []
    signing = {shard: _signing_keys(directory / f"nats-{shard_user(shard)}.json") for shard in shards}
    public = {shard: EventKeys(keys).announced for shard, keys in signing.items()}
    for shard in shards:
        publisher, peer = shard_user(shard), reader_user(shard)
        path = directory / f"nats-{publisher}.json"
        earlier = _earlier(path)
        reading = _credential(peer, earlier.reader if earlier else None, reach, IMPORTED_API)
        publishing = _credential(publisher, earlier, reach)
        keys = {"signing_keys": signing[shard], "event_keys": public}
        write_credential(path, msgspec.structs.replace(publishing, reader=reading, **keys))
        others = [name for name in shards if name != shard]
        found.append(NatsUser(publisher, publishing.password, shard_permissions(shard)))
        found.append(NatsUser(peer, reading.password, reader_permissions(peer, others, selects=True)))
    for user in readers:
        found.append(reading_user(directory, reader_permissions(user, shards), user, public, reach))
    return found


def public_keys(directory: Path, shards: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The public keys of these shards' events, by their credential files. After `nats_users`. Raises OSError."""
    found = {shard: _earlier(credential_path(directory, shard_user(shard))) for shard in shards}
    return {shard: EventKeys(each.signing_keys).announced for shard, each in found.items() if each is not None}


def edge_users(directory: Path, shards: Sequence[str], names: Sequence[str], reach: Reach = PLAIN) -> list[NatsUser]:
    """Users of the controllers of the edge service, each with a credential file. After `nats_users`. Raises OSError."""
    keys = public_keys(directory, shards)
    return [reading_user(directory, changes_permissions(name, shards, ROOT), name, keys, reach) for name in names]


def reading_user(
    directory: Path, permissions: Permissions, user: str, keys: Mapping[str, tuple[str, ...]], reach: Reach = PLAIN
) -> NatsUser:
    """A user that only reads, with its credential file `nats-<user>.json`. A password of an earlier call stays."""
    path = credential_path(directory, user)
    reading = _credential(user, _earlier(path), reach, IMPORTED_API)
    write_credential(path, msgspec.structs.replace(reading, event_keys=dict(keys)))
    return NatsUser(user, reading.password, permissions)


def credential_path(directory: Path, user: str) -> Path:
    """The credential file of a NATS user."""
    return directory / f"nats-{user}.json"


def renew_passwords(directory: Path) -> None:
    """Give every NATS user with a credential file a new password, but for servers on each other: the routes of a
    running cluster keep theirs. The configuration of the servers is then to be written. Raises OSError."""
    for path in sorted(directory.glob("nats-*.json")):
        found = _earlier(path)
        if found is None or found.user == ROUTE_USER:
            continue
        reader = found.reader and msgspec.structs.replace(found.reader, password=_new_password())
        write_credential(path, msgspec.structs.replace(found, password=_new_password(), reader=reader))


def _new_password() -> str:
    return secrets.token_urlsafe(32)


def _signing_keys(path: Path) -> tuple[SigningKey, ...]:
    earlier = _earlier(path)
    return (earlier.signing_keys if earlier else ()) or (new_key(),)


def _credential(user: str, earlier: NatsCredential | None, reach: Reach, api_prefix: str = OWN_API) -> NatsCredential:
    password = earlier.password if earlier else _new_password()
    return NatsCredential(user, password, inbox_prefix(user), reach.ca_file, api_prefix, servers=reach.servers)


def _earlier(path: Path) -> NatsCredential | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=NatsCredential)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
