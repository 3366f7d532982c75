"""The serving certificate of a process that is not a shard: the configured one, or one that its own CA signs.

Front proxies, event gateways and edge controllers ask for it at their start. Invariant: files that the settings name
are never written.
"""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.process.listen_address import serving_names
from atoll.machinery.process.private_files import Pair, load_pair
from atoll.machinery.process.server_config import ServerConfig

_AUTHORITY = "serving-ca"


def serving_pair(config: ServerConfig, directory: Path, process: str) -> Pair:
    """The pair of a process with this name; without files in its settings, made once in the directory, with a CA.

    Raises PkiError, OSError.
    """
    if config.tls_cert_file:
        return load_pair(Path(config.tls_cert_file), Path(config.tls_private_key_file))
    # It loads X.509, which a process with a certificate does not need.
    from atoll.machinery.process import pki

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = pki.load_or_make_ca(directory, _AUTHORITY, f"atoll {process.replace('-', ' ')} CA")
    return pki.load_or_make_serving(directory, process, authority, serving_names(config.bind_address))
