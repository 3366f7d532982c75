"""Targets whose credentials are read again when their kubeconfig changes.

Processes make them with `renewable`, and run `file_watch.renew_clients` beside their work. Invariant: all clients of
such a target, also those derived from it, send their next request with the credential as it is then, over a connection
that was made with it.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import overload

import msgspec

from atoll.machinery.client.kubeconfig import Kubeconfig, KubeconfigError, Target
from atoll.machinery.process.file_watch import ClientFiles
from atoll.machinery.process.private_files import PkiError
from atoll.machinery.process.tls import ClientContext
from atoll.machinery.wire.exchange import Headers


class RenewableHeaders(Headers):
    """Headers of a credential that can be replaced by another one."""

    def __init__(self, headers: Headers) -> None:
        self._current = headers

    def replace(self, headers: Headers) -> None:
        """Have them be others from now on."""
        self._current = headers

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...

    @overload
    def __getitem__(self, index: slice) -> Headers: ...

    def __getitem__(self, index: int | slice) -> tuple[str, str] | Headers:
        return self._current[index]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._current)

    def __len__(self) -> int:
        return len(self._current)


def renewable(file: str, context: str, renewed: list[ClientFiles]) -> Target:
    """A context of a kubeconfig, by default the current one. Server and path stay.

    The rest is read again when the kubeconfig or a file that it names changes: these files are added to `renewed`.
    Raises KubeconfigError.
    """
    kubeconfig = Kubeconfig.load(file)
    target = kubeconfig.target(context)
    if target.tls is None:
        return target
    tls, headers = ClientContext.around(target.tls), RenewableHeaders(target.headers)

    def made() -> ssl.SSLContext:
        try:
            found = Kubeconfig.load(file).target(context)
        except KubeconfigError as error:
            raise PkiError(str(error)) from error
        if found.tls is None:
            raise PkiError(f"kubeconfig {file} names no https URL any more")
        headers.replace(found.headers)
        return found.tls

    renewed.append(ClientFiles(kubeconfig.files(context), tls, made))
    return msgspec.structs.replace(target, tls=tls, headers=headers)
