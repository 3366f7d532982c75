"""Static tokens are read again when their files change: the token file, and the hashes of the administrators' tokens.

Processes run both beside their server. New administrators' tokens are accepted at once, and those before for
`OVERLAP_S` more, in which `atoll rotate-admin-tokens` writes the new ones into the kubeconfig. Requests in progress
with a token that is accepted no more are cut. Invariant: a file that cannot be read changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from atoll.machinery.apiserver.authentication.admin_tokens import FILE_NAMES, stored_users
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, parse_token_file
from atoll.machinery.meta.user import User
from atoll.machinery.process.file_watch import on_change
from atoll.machinery.wire.exchange import HttpRequest

log = structlog.get_logger()

#: How long the administrators' tokens before are accepted beside new ones.
OVERLAP_S = 5.0

#: Cuts the connections whose request in progress is refused.
Cut = Callable[[Callable[[HttpRequest], bool]], None]


async def reload_token_file(file: str, tokens: StaticTokens | None, cut: Cut) -> None:
    """Read the token file again when it changes, until cancelled. Without `tokens` nothing is read."""

    def read() -> None:
        assert tokens is not None, "no file is watched without tokens"
        try:
            users = parse_token_file(Path(file).read_text())
        except (ValueError, OSError) as error:
            log.error("token file not reloaded", reason=str(error))
            return
        if refused := tokens.replace(users):
            cut(refused)
            log.info("token file reloaded", tokens=len(users))

    await on_change([file] if tokens is not None else [], read)


async def reload_admin_tokens(root: Path, tokens: StaticTokens | None, cut: Cut) -> None:
    """Read the stored hashes again when they change, until cancelled. Without `tokens` nothing is read."""
    if tokens is None:
        await asyncio.Event().wait()
    else:
        reloading = _AdminTokens(root, tokens, cut)
        await on_change([str(root / name) for name in FILE_NAMES.values()], reloading.read)


class _AdminTokens:
    def __init__(self, root: Path, tokens: StaticTokens, cut: Cut) -> None:
        self._root, self._tokens, self._cut = root, tokens, cut
        self._stored: Mapping[bytes, User] = {
            digest: user for digest, user in tokens.users.items() if user.name in FILE_NAMES
        }

    def read(self) -> None:
        found = stored_users(self._root, self._stored)
        gone = self._stored.keys() - found.keys()
        if not gone:
            return
        self._tokens.replace({**self._tokens.users, **found})
        self._stored = found
        log.info("tokens of administrators reloaded")
        asyncio.get_running_loop().call_later(OVERLAP_S, self._end, gone)

    def _end(self, gone: set[bytes]) -> None:
        kept = {digest: user for digest, user in self._tokens.users.items() if digest not in gone - self._stored.keys()}
        if refused := self._tokens.replace(kept):
            self._cut(refused)
