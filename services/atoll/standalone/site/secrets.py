"""The directories of `atoll certs` as Secrets of a Kubernetes namespace.

`atoll certs secrets` calls it, in a job of the chart `infra/helm/atoll`. A Secret `<prefix>-<process>` holds the files
of a process, `<prefix>-admin` the administrators' kubeconfig, `<prefix>-site` all that these are made of, as an
archive.
Invariants: the archive is stored first, under the revision that was read, so that of two jobs at a time one is refused
and no process gets what nobody could make again; a Secret is written only where its content differs.
"""

from __future__ import annotations

import base64
import gzip
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound
from atoll.machinery.process.private_files import PkiError, write_private
from atoll.standalone.site.inventory import FILE, Inventory
from atoll.standalone.site.layout import Layout

SECRETS = Resource("", "v1", "secrets")
SITE, ADMIN, MONITORING = "site", "admin", "monitoring"
#: Names of Secrets that are no processes.
RESERVED = frozenset({SITE, ADMIN, MONITORING})
_ARCHIVE = "site.tar.gz"
#: Kubernetes' bound of a Secret.
_MAX_BYTES = 1 << 20
_LABELS = {"app.kubernetes.io/name": "atoll", "app.kubernetes.io/component": "certificates"}


class SiteSecrets:
    """The Secrets of a site in a namespace. All methods raise ApiError, ClientError, TimeoutError."""

    def __init__(self, client: Client, namespace: str, prefix: str) -> None:
        self._client, self._namespace, self._prefix = client, namespace, prefix
        #: Each Secret as it was read.
        self._read: dict[str, Object] = {}

    async def load(self, layout: Layout) -> None:
        """Put what an earlier run stored into the directory, which is empty at first. Raises OSError, PkiError."""
        archive = (await self._files(SITE)).get(_ARCHIVE)
        if archive is None:
            return
        try:
            with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
                _unpack(files, layout.root)
        except (tarfile.TarError, OSError) as error:
            raise PkiError(f"Secret {self._prefix}-{SITE} holds no site: {error}") from error

    async def store(self, layout: Layout, site: Inventory, monitoring: Mapping[str, bytes]) -> list[str]:
        """Write what differs; return the names of the Secrets that were written. Raises PkiError, OSError."""
        wanted = {process.name: _directory(layout.root / process.name) for process in site.processes}
        wanted[ADMIN] = {"admin.kubeconfig": (layout.root / "admin.kubeconfig").read_bytes()}
        if monitoring:
            wanted[MONITORING] = dict(monitoring)
        secrets = {SITE: {_ARCHIVE: _archive(layout)}, **wanted}
        for name, files in secrets.items():
            if sum(map(len, files.values())) > _MAX_BYTES:
                raise PkiError(f"Secret {self._prefix}-{name} would be larger than 1 MiB: keep the site in a directory")
        return [f"{self._prefix}-{name}" for name, files in secrets.items() if await self._write(name, files)]

    async def _files(self, name: str) -> dict[str, bytes]:
        """The files in a Secret; empty if there is none."""
        if name not in self._read:
            try:
                self._read[name] = await self._client.get(SECRETS, f"{self._prefix}-{name}", self._namespace)
            except NotFound:
                return {}
        data: Mapping[str, str] = self._read[name].get("data") or {}
        return {file: base64.b64decode(content) for file, content in data.items()}

    async def _write(self, name: str, files: Mapping[str, bytes]) -> bool:
        if await self._files(name) == files:
            return False
        data = {file: base64.b64encode(content).decode() for file, content in sorted(files.items())}
        earlier = self._read.get(name)
        metadata = {"name": f"{self._prefix}-{name}", "namespace": self._namespace, "labels": _LABELS}
        secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
        if earlier is None:
            await self._client.create(SECRETS, secret)
        else:
            await self._client.update(SECRETS, {**secret, "metadata": earlier["metadata"]})
        return True


def _directory(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def _unpack(files: tarfile.TarFile, root: Path) -> None:
    for each in files:
        path, content = Path(each.name), files.extractfile(each)
        if content is None or path.is_absolute() or ".." in path.parts:
            raise tarfile.TarError(f"no file of a site: {each.name!r}")
        write_private(root / path, content.read())


def _archive(layout: Layout) -> bytes:
    """What makes a site, as an archive that is the same for the same content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as files:
        for path in _made_of(layout):
            entry = tarfile.TarInfo(str(path.relative_to(layout.root)))
            entry.size, entry.mode = path.stat().st_size, 0o600
            files.addfile(entry, io.BytesIO(path.read_bytes()))
    return gzip.compress(packed.getvalue(), mtime=0)


def _made_of(layout: Layout) -> Iterator[Path]:
    yield layout.root / FILE
    for directory in (layout.pki, layout.nats):
        yield from sorted(path for path in directory.rglob("*") if path.is_file())
