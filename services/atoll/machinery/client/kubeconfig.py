"""kubeconfig files: reading a context, and the edits that changing workspaces makes.

Plug-ins and `Client.from_kubeconfig` read through here. Writing keeps whatever else the file holds and replaces it in
one step; where several files are listed, the first is written.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import yaml

from atoll.machinery.meta.objects import Object
from atoll.machinery.wire.exchange import Headers

DEFAULT_FILE = "~/.kube/config"


class KubeconfigError(Exception):
    """What is wrong with a kubeconfig, in one sentence."""


class Target(msgspec.Struct, frozen=True):
    """Where a context points and with what: URL parts, TLS context, credentials as headers."""

    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None
    headers: Headers = ()
    server_name: str = ""

    @property
    def base_url(self) -> str:
        """Scheme, host and port."""
        scheme = "https" if self.tls is not None else "http"
        return f"{scheme}://{self.host}:{self.port}"


class Kubeconfig:
    """One kubeconfig in memory. `raw` is the whole document."""

    def __init__(self, path: Path, raw: Object) -> None:
        self.path, self.raw = path, raw

    @classmethod
    def load(cls, path: str = "", environment: Mapping[str, str] = os.environ) -> Kubeconfig:
        """Read a file: the one named, else the first of KUBECONFIG, else the default. Raises KubeconfigError."""
        listed = path or environment.get("KUBECONFIG", "").split(os.pathsep)[0] or DEFAULT_FILE
        file = Path(listed).expanduser()
        try:
            raw = yaml.safe_load(file.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise KubeconfigError(f"kubeconfig {file} cannot be read: {error}") from error
        if not isinstance(raw, dict):
            raise KubeconfigError(f"kubeconfig {file} does not hold a mapping")
        return cls(file, raw)

    @property
    def current(self) -> str:
        return str(self.raw.get("current-context") or "")

    def entry(self, kind: str, name: str) -> Object:
        """The cluster, user or context of a name. Raises KubeconfigError."""
        for item in self.raw.get(f"{kind}s") or []:
            if item.get("name") == name:
                return dict(item.get(kind) or {})
        raise KubeconfigError(f"{kind} {name!r} is not in {self.path}")

    def set_entry(self, kind: str, name: str, value: Object) -> None:
        """Add or replace a cluster, user or context."""
        items = self.raw.setdefault(f"{kind}s", [])
        for item in items:
            if item.get("name") == name:
                item[kind] = value
                return
        items.append({"name": name, kind: value})

    def target(self, context: str = "") -> Target:
        """Where a context points (the current one by default). Raises KubeconfigError."""
        found = self.entry("context", context or self.current)
        cluster = self.entry("cluster", found.get("cluster", ""))
        user = self.entry("user", found["user"]) if found.get("user") else {}
        parts = urlsplit(cluster.get("server", ""))
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise KubeconfigError(f"server {cluster.get('server')!r} of cluster {found.get('cluster')!r} is no URL")
        tls = self._tls(cluster, user) if parts.scheme == "https" else None
        port = parts.port or (443 if tls is not None else 80)
        name = cluster.get("tls-server-name", "")
        return Target(parts.hostname, port, parts.path.rstrip("/"), tls, self._headers(user), name)

    def _headers(self, user: Object) -> Headers:
        token = user.get("token") or ""
        if not token and user.get("tokenFile"):
            token = self._file(user["tokenFile"]).read_text().strip()
        return (("authorization", f"Bearer {token}"),) if token else ()

    def _tls(self, cluster: Object, user: Object) -> ssl.SSLContext:
        context = ssl.create_default_context()
        authority = self._data(cluster, "certificate-authority")
        if authority:
            context = ssl.create_default_context(cadata=authority.decode())
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = self._data(user, "client-certificate"), self._data(user, "client-key")
        if certificate and key:
            with tempfile.TemporaryDirectory() as directory:
                chain, private = Path(directory) / "chain", Path(directory) / "key"
                for file, data in ((chain, certificate), (private, key)):
                    file.touch(mode=0o600)
                    file.write_bytes(data)
                context.load_cert_chain(chain, private)
        return context

    def _data(self, entry: Object, name: str) -> bytes:
        if entry.get(f"{name}-data"):
            return base64.b64decode(entry[f"{name}-data"])
        return self._file(entry[name]).read_bytes() if entry.get(name) else b""

    def _file(self, name: str) -> Path:
        """A file named in the kubeconfig; relative names are relative to it."""
        return self.path.parent / Path(name).expanduser()

    def save(self) -> None:
        """Replace the file in one step, readable by its owner alone."""
        text = yaml.safe_dump(self.raw, sort_keys=False)
        descriptor, scratch = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(scratch).replace(self.path)
