"""The target of a kubeconfig context: address, TLS context, credentials as headers.

Made by `Kubeconfig.target`, used by `Client`. Credentials are read once. Unsupported settings (credential
programs, proxies) are errors: a request is never sent with fewer credentials than the context declares.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from atoll.machinery.client.waves import Waves
from atoll.machinery.meta.objects import Object
from atoll.machinery.wire.exchange import Headers
from atoll.machinery.wire.pending_response import ClientError

CLUSTERS = "/clusters/"
_UNSUPPORTED_OF_USER = ("exec", "auth-provider", "username", "password")


class KubeconfigError(Exception):
    """An invalid kubeconfig. The text is one sentence."""


class Entry(NamedTuple):
    """A cluster or user as its file has it; relative file names are relative to `directory`."""

    name: str
    value: Object
    directory: Path

    def file(self, key: str) -> bytes:
        """Content of a file named in the entry. Raises KubeconfigError."""
        path = self.directory / Path(self.value[key]).expanduser()
        try:
            return path.read_bytes()
        except OSError as error:
            raise KubeconfigError(f"{key} of {self.name!r} cannot be read: {error}") from error

    def data(self, key: str) -> bytes:
        """Inline data, else the file's, else nothing. Raises KubeconfigError."""
        inline = self.value.get(f"{key}-data")
        if inline:
            try:
                return base64.b64decode(inline, validate=True)
            except ValueError as error:
                raise KubeconfigError(f"{key}-data of {self.name!r} is not base64: {error}") from error
        return self.file(key) if self.value.get(key) else b""


class Fenced(ClientError):
    """A write that another process of the same account has to make. It was not done."""


class Fence(Protocol):
    """The fencing tokens of a client's writes."""

    def token(self) -> int:
        """Return the token of a write that is sent now. Raises Fenced."""

    async def refused(self) -> None:
        """The server knows a newer token: return once that is looked for."""


class Target(msgspec.Struct, frozen=True):
    """An API server with the credentials of one user. `path` is the URL's; `tls` None means plain text."""

    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None
    headers: Headers = ()
    server_name: str = ""
    fence: Fence | None = None
    #: With which others writes leave; each at once without.
    waves: Waves | None = None

    @property
    def base_url(self) -> str:
        """Scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls is not None else 'http'}://{host}:{self.port}"

    @property
    def workspace(self) -> str:
        """Path or name of the logical cluster in the URL; empty if it names none."""
        return split_workspace(self.path)[1]

    def service_url(self, name: str) -> str:
        """The URL of a service below `/services/` of the same server."""
        return f"{self.base_url}{split_workspace(self.path)[0]}/services/{name}"

    def path_of(self, cluster: str) -> str:
        """The URL path of another logical cluster on the same server."""
        return split_workspace(self.path)[0] + CLUSTERS + quote(cluster, safe=":*~")


def split_workspace(path: str) -> tuple[str, str]:
    """Split a URL path into the part before `/clusters/` and the workspace after it (empty if there is none)."""
    prefix, found, rest = path.partition(CLUSTERS)
    return (prefix, rest.strip("/")) if found else (path.rstrip("/"), "")


def make_target(cluster: Entry, user: Entry | None) -> Target:
    """A target from a cluster and a user. Raises KubeconfigError."""
    server = str(cluster.value.get("server") or "")
    parts = _url(cluster.name, server)
    if cluster.value.get("proxy-url"):
        raise KubeconfigError(f"proxy-url of cluster {cluster.name!r} is not supported")
    tls = _tls(cluster, user) if parts.scheme == "https" else None
    return Target(
        parts.hostname or "",
        parts.port or (443 if tls is not None else 80),
        parts.path.rstrip("/"),
        tls,
        _headers(user) if user is not None else (),
        str(cluster.value.get("tls-server-name") or ""),
    )


class _Url(NamedTuple):
    scheme: str
    hostname: str
    port: int | None
    path: str


def _url(name: str, server: str) -> _Url:
    try:
        parts = urlsplit(server)
        found = _Url(parts.scheme, parts.hostname or "", parts.port, parts.path)
    except ValueError:
        found = _Url("", "", None, "")
    if found.scheme not in {"http", "https"} or not found.hostname:
        raise KubeconfigError(f"server {server!r} of cluster {name!r} is no URL")
    return found


def _headers(user: Entry) -> Headers:
    value = user.value
    for key in _UNSUPPORTED_OF_USER:
        if value.get(key):
            raise KubeconfigError(f"user {user.name!r} has {key}, which is not supported here")
    # The token file wins, as in Kubernetes, since it is renewed.
    token = user.file("tokenFile").decode().strip() if value.get("tokenFile") else str(value.get("token") or "")
    headers = [("authorization", f"Bearer {token}")] if token else []
    return (*headers, *_impersonation(value))


def _impersonation(value: Mapping[str, object]) -> Headers:
    headers: list[tuple[str, str]] = []
    if value.get("as"):
        headers.append(("impersonate-user", str(value["as"])))
    if value.get("as-uid"):
        headers.append(("impersonate-uid", str(value["as-uid"])))
    groups = value.get("as-groups")
    if isinstance(groups, list):
        headers += [("impersonate-group", str(group)) for group in groups]
    extra = value.get("as-user-extra")
    if isinstance(extra, dict):
        for key, values in extra.items():
            headers += [(f"impersonate-extra-{quote(str(key), safe='')}", str(each)) for each in values or ()]
    return headers


def _tls(cluster: Entry, user: Entry | None) -> ssl.SSLContext:
    authority = cluster.data("certificate-authority")
    try:
        # Without an authority the system's are trusted; with one, only it.
        context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"certificate-authority of cluster {cluster.name!r} is no PEM: {error}") from error
    context.set_alpn_protocols(["http/1.1"])
    if cluster.value.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user is not None:
        _load_certificate(context, user)
    return context


def _load_certificate(context: ssl.SSLContext, user: Entry) -> None:
    certificate, key = user.data("client-certificate"), user.data("client-key")
    if not certificate and not key:
        return
    # `ssl` loads a key only from a file; this one is private and deleted at once.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(key + b"\n" + certificate)
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise KubeconfigError(f"client certificate of user {user.name!r} does not load: {error}") from error
