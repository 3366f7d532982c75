"""Bearer tokens at the proxy: verified here, left to the shard, or refused.

`authentication` asks for each request with a token. The proxy verifies tokens of the token file and of configured
issuers. Of a service account's token it checks signature and times, not whether the account still exists; of a
workspace's own issuer it has what the state stream brought, and perhaps no connection to the issuer: such tokens go on
to the shard. A backend of a mapping cannot judge them: for it the proxy waits for the issuer's keys, and has the
account's shard confirm the account. Invariants: a token is refused only for what the proxy has seen, never for what it
lacks (a key, an issuer, a workspace); no user is verified but by a signature, and an account by its shard too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from atoll.machinery.apiserver.authentication.authenticator import WorkspaceSource
from atoll.machinery.apiserver.authentication.jwt import PublicKey, UnknownKey
from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending, NoKeys
from atoll.machinery.apiserver.authentication.remote_service_accounts import RemoteServiceAccounts
from atoll.machinery.apiserver.authentication.service_account_claims import Subject
from atoll.machinery.apiserver.authentication.service_accounts import (
    ServiceAccountIssuers,
    check_times,
    subject_of,
    user_of,
)
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, TokenSource, token_digest
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER, User

MAX_TOKENS = 8192
#: Concurrent fetches of issuer keys that no request waits for.
MAX_FETCHING = 64


class TokenUser(msgspec.Struct, frozen=True):
    """The user of a token, and whether the proxy verified it."""

    user: User
    verified: bool


#: Of a token whose issuer's keys are missing here.
_WITHOUT_KEYS = TokenUser(ANONYMOUS_USER, verified=False)


class _Account(msgspec.Struct, frozen=True):
    """A token with a valid signature."""

    subject: Subject
    user: User


class ServiceAccountTokens:
    """Checks signature and times of service account tokens. One for each event loop."""

    def __init__(
        self,
        keys: Mapping[str, PublicKey],
        issuers: ServiceAccountIssuers,
        clock: Callable[[], float] = time.time,
        *,
        shards: RemoteServiceAccounts | None = None,
    ) -> None:
        """`shards` confirm accounts; without it none is confirmed."""
        self._keys, self._issuers, self._clock, self._shards = keys, issuers, clock, shards
        self._cache: LruCache[bytes, _Account] = LruCache(MAX_TOKENS)

    def user_of(self, token: str, digest: bytes) -> User | None:
        """The account of a token; None for another kind of token, or an unknown key. Raises Unauthorized."""
        known = self._cache.get(digest)
        if known is None:
            subject = self._subject(token) if self._keys else None
            if subject is None:
                return None
            known = _Account(subject, user_of(subject))
            self._cache.put(digest, known)
        check_times(known.subject, self._clock())
        return known.user

    def confirm(self, token: str, digest: bytes, cluster: str, view: View) -> bool:
        """Whether the account of a token that `user_of` knows is one of the cluster, and its shard confirms the token.

        Raises Unauthorized, AuthenticationPending.
        """
        known, shard = self._cache.get(digest), view.replicas.shard_of(cluster)
        if known is None or self._shards is None or not shard or known.subject.cluster != cluster:
            return False
        self._shards.check(shard, known.subject, token, digest)
        return True

    def _subject(self, token: str) -> Subject | None:
        try:
            return subject_of(token, self._keys, self._issuers.names)
        except Unauthorized as error:
            if isinstance(error.__cause__, UnknownKey):
                # The shards may have a new key before the proxy.
                return None
            raise


class TokenAuthentication:
    """Authenticates tokens. One for each event loop."""

    def __init__(
        self,
        sources: tuple[TokenSource, ...],
        accounts: ServiceAccountTokens,
        audiences: tuple[str, ...],
        workspaces: WorkspaceSource | None = None,
    ) -> None:
        self._sources, self._accounts, self._audiences, self._workspaces = sources, accounts, audiences, workspaces
        #: The tokens of the token file; None without one.
        self.listed = next((source for source in sources if isinstance(source, StaticTokens)), None)
        self._fetching: set[asyncio.Future[None]] = set()

    def authenticate(
        self, token: str, cluster: str, view: View, *, digest: bytes = b"", vouch: bool = False
    ) -> TokenUser | None:
        """The user of a token in a cluster (or ""), None to leave it to the backend.

        `digest` is that of the token, if it was computed. `vouch`: the backend is no shard, and cannot judge a token.
        Raises Unauthorized, AuthenticationPending.
        """
        digest = digest or token_digest(token)
        account = self._accounts.user_of(token, digest)
        if account is not None:
            return TokenUser(account, verified=vouch and self._accounts.confirm(token, digest, cluster, view))
        refused: Unauthorized | None = None
        try:
            for source in self._sources:
                user = source.user_of(token, digest, self._audiences, view)
                if user is not None:
                    return TokenUser(user, verified=True)
        except Unauthorized as error:
            # A workspace may trust the same issuer for other audiences.
            refused = error
        found = self._of_workspace(token, digest, cluster, view, vouch)
        if found is _WITHOUT_KEYS:
            return None
        if found is None and refused is not None and not isinstance(refused.__cause__, NoKeys):
            raise refused
        return found

    def _of_workspace(self, token: str, digest: bytes, cluster: str, view: View, vouch: bool) -> TokenUser | None:
        if self._workspaces is None or not cluster:
            return None
        try:
            user = self._workspaces.user_of(token, digest, self._audiences, view, cluster)
        except AuthenticationPending as error:
            if vouch:
                raise
            # The shard verifies the token anyway: waiting here would only spare it invalid ones.
            self._fetch(error)
            return _WITHOUT_KEYS
        except Unauthorized as error:
            if isinstance(error.__cause__, NoKeys):
                return _WITHOUT_KEYS
            raise
        return TokenUser(user, verified=vouch) if user is not None else None

    def _fetch(self, unsettled: AuthenticationPending) -> None:
        if len(self._fetching) >= MAX_FETCHING:
            return
        task = asyncio.ensure_future(unsettled.complete())
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)
