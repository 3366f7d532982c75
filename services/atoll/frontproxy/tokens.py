"""Bearer tokens at the proxy: which it vouches for, which a shard has to judge, and which are refused here already.

`identity` asks for each request that carries one. TokenAuthentication of the token file and of configured issuers are the proxy's to
judge. Of a service account's it knows signature and times, not whether the account is still there; of a workspace's own
issuer it has what the state stream brought, and perhaps no way to that issuer: such tokens go on. Invariant: nothing is
refused for what the proxy lacks (a key, an issuer, a workspace), only for what it has seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from atoll.machinery.apiserver.authentication.authenticator import WorkspaceSource
from atoll.machinery.apiserver.authentication.claims import Subject
from atoll.machinery.apiserver.authentication.jwt import PublicKey, UnknownKey
from atoll.machinery.apiserver.authentication.oidc.keys import NoKeys, Unsettled
from atoll.machinery.apiserver.authentication.service_accounts import Issuers, check_times, subject_of, user_of
from atoll.machinery.apiserver.authentication.tokens import TokenSource, token_digest
from atoll.machinery.apiserver.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import User

MAX_TOKENS = 8192
#: Requests that may have keys of issuers fetched without waiting for them; those beyond leave it to the shard.
MAX_FETCHING = 64


class TokenUser(msgspec.Struct, frozen=True):
    """Whose a token is, and whether the proxy vouches for that."""

    user: User
    vouched: bool


class _Account(msgspec.Struct, frozen=True):
    """A token whose signature held."""

    legacy: bool
    not_before: int
    expires: int
    user: User


class ServiceAccountTokens:
    """Service account tokens, as far as a signature and a clock tell. One an event loop."""

    def __init__(self, keys: Mapping[str, PublicKey], issuers: Issuers, clock: Callable[[], float] = time.time) -> None:
        self._keys, self._issuers, self._clock = keys, issuers, clock
        self._known: LruCache[bytes, _Account] = LruCache(MAX_TOKENS)

    def user_of(self, token: str, digest: bytes) -> User | None:
        """The account a token names; None for what is no such token, or where no key is known. Raises Unauthorized."""
        known = self._known.get(digest)
        if known is None:
            subject = self._subject(token) if self._keys else None
            if subject is None:
                return None
            known = _Account(subject.legacy, subject.not_before, subject.expires, user_of(subject))
            self._known.put(digest, known)
        check_times(known, self._clock())
        return known.user

    def _subject(self, token: str) -> Subject | None:
        try:
            return subject_of(token, self._keys, self._issuers.names)
        except Unauthorized as error:
            if isinstance(error.__cause__, UnknownKey):
                # The shards may have been given a new key before us.
                return None
            raise


class TokenAuthentication:
    """Judges tokens. One an event loop."""

    def __init__(
        self,
        sources: tuple[TokenSource, ...],
        accounts: ServiceAccountTokens,
        audiences: tuple[str, ...],
        workspaces: WorkspaceSource | None = None,
    ) -> None:
        self._sources, self._accounts, self._audiences, self._workspaces = sources, accounts, audiences, workspaces
        self._fetching: set[asyncio.Future[None]] = set()

    def judge(self, token: str, cluster: str, view: View) -> TokenUser | None:
        """Whose token it is in a cluster ("" for none); None if nobody here knows. Raises Unauthorized, Unsettled."""
        digest = token_digest(token)
        account = self._accounts.user_of(token, digest)
        if account is not None:
            return TokenUser(account, vouched=False)
        refused: Unauthorized | None = None
        try:
            for source in self._sources:
                user = source.user_of(token, digest, self._audiences, view)
                if user is not None:
                    return TokenUser(user, vouched=True)
        except Unauthorized as error:
            # A workspace may trust the same issuer for tokens that are not meant for the installation.
            refused = error
        found = self._of_workspace(token, digest, cluster, view)
        if found is None and refused is not None and not isinstance(refused.__cause__, NoKeys):
            raise refused
        return found

    def _of_workspace(self, token: str, digest: bytes, cluster: str, view: View) -> TokenUser | None:
        if self._workspaces is None or not cluster:
            return None
        try:
            user = self._workspaces.user_of(token, digest, self._audiences, view, cluster)
        except Unsettled as error:
            # The shard judges it in any case: nobody waits here for what only spares it the bad ones.
            self._fetch(error)
            return None
        except Unauthorized as error:
            if isinstance(error.__cause__, NoKeys):
                return None
            raise
        return TokenUser(user, vouched=False) if user is not None else None

    def _fetch(self, unsettled: Unsettled) -> None:
        if len(self._fetching) >= MAX_FETCHING:
            return
        task = asyncio.ensure_future(unsettled.settle())
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)
