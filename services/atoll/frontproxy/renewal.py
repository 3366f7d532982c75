"""The client certificates of a front proxy, which are read again when their files change.

`process` renews them beside its server. Invariant: the key that signs assertions stays while the process runs, as
requests under way carry what it signed over whichever connection they get.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from atoll.frontproxy.config import FrontProxyConfig
from atoll.frontproxy.mapping import Mapping, MappingTable
from atoll.machinery.process.file_watch import ClientFiles
from atoll.machinery.process.private_files import Pair, PkiError, load_pair
from atoll.machinery.process.tls import ClientContext, client_context


def shard_files(config: FrontProxyConfig, mappings: MappingTable, context: ClientContext, key: bytes) -> ClientFiles:
    """The files of the context for shards; `key` is the one that signs assertions."""
    entry = next((entry for entry in mappings.mappings if entry.is_shards), Mapping(""))
    certificate, key_file = entry.files[1:]
    if config.proxy_client_cert_file:
        certificate, key_file = config.proxy_client_cert_file, config.proxy_client_key_file
    authorities = entry.files[0] or config.root_ca_file
    files = authorities, certificate, key_file
    return ClientFiles(files, context, partial(_read, *files, key))


def backend_files(mappings: MappingTable) -> Iterator[ClientFiles]:
    """The files of the contexts for other backends."""
    for entry in mappings.mappings:
        if entry.tls is not None:
            yield ClientFiles(tuple(filter(None, entry.files)), entry.tls, partial(_read, *entry.files, None))


def _read(authorities: str, certificate: str, key_file: str, key: bytes | None) -> ClientContext:
    """The context of these files. Raises PkiError for another key than `key`; ssl.SSLError, OSError."""
    pair: Pair | None = None
    if certificate:
        pair = load_pair(Path(certificate), Path(key_file))
        if key is not None and pair.key.strip() != key.strip():
            raise PkiError(f"{key_file} holds another key than the one that signs assertions: restart the process")
    return client_context(Path(authorities).read_bytes(), pair)
