"""Whether the account of a verified service account token still exists: the account's own shard judges the token.

`process` passes it to authentication, which calls it before the proxy vouches for an account to a backend of a mapping.
The token itself is the credential of the request. Invariant: only an answer of that shard that the token is valid, or
is not, is a result; any other one means that the shard is unreachable.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.frontproxy.path_fallback import ShardGet
from atoll.frontproxy.route_table import RouteTable
from atoll.machinery.apiserver.authentication.remote_service_accounts import AccountCheck, ShardUnreachable
from atoll.machinery.apiserver.authentication.service_account_claims import Subject
from atoll.machinery.storage.contract import Store
from atoll.machinery.wire.client import ClientError

#: Any authenticated request is answered with one of these.
_VALID, _INVALID = frozenset({200, 403}), 401


def account_check(store: Store, routes: Callable[[], RouteTable], get: ShardGet) -> AccountCheck:
    """Return the check. `get` sends a request to the shard at a base URL."""

    def base_url(shard: str) -> str:
        with store.snapshot() as snapshot:
            found = routes().at(snapshot)
            return found.locator.base_url(snapshot, shard) if found is not None else ""

    async def check(shard: str, subject: Subject, token: str) -> bool:
        url = base_url(shard)
        if not url:
            raise ShardUnreachable("its address is unknown")
        try:
            response = await get(url, f"/clusters/{subject.cluster}/api", [("Authorization", f"Bearer {token}")])
        except (ClientError, TimeoutError) as error:
            raise ShardUnreachable(str(error) or "timed out") from error
        if response.status not in {*_VALID, _INVALID}:
            raise ShardUnreachable(f"status {response.status}")
        return response.status in _VALID

    return check
