"""Continue tokens of chunked lists, each bound to its list.

A token holds the revision, the time of the first page, the list (type, cluster, namespace, selector hash) and the
last item sent. A token of another list is a 400. A token older than the list window is a 410 with a fresh,
inconsistent token (revision 0: continue from the latest state).
"""

from __future__ import annotations

import base64
import hashlib
import time

import msgspec

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.status import BadRequest, Expired
from atoll.machinery.storage.contract import Position, Scope

_VERSION = "atoll.dev/v1"
_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
    "the results. Continuing with the provided token results in an inconsistent list - objects that were "
    "created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


class Continuation(msgspec.Struct, frozen=True, array_like=True):
    """A decoded token. `revision` 0 continues from the latest state; `remaining` -1 is unknown."""

    version: str
    revision: int
    moment: int
    fingerprint: bytes
    after: Position
    remaining: int = -1


def fingerprint(scope: Scope, selectors: str) -> bytes:
    """Return a hash of the list, which a token and the request that carries it must share."""
    kind: ResourceType = scope.type
    parts = (kind.group, kind.resource, kind.identity, scope.cluster, scope.namespace, selectors)
    return hashlib.sha256("\x00".join(parts).encode()).digest()[:12]


def issue(revision: int, moment: int, mark: bytes, after: Position, remaining: int = -1) -> str:
    """Encode a token. `moment` is in Unix seconds; `remaining` items follow `after` at that revision."""
    data = msgspec.msgpack.encode(Continuation(_VERSION, revision, moment, mark, after, remaining))
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def read(token: str, mark: bytes, window_s: int) -> Continuation:
    """Decode a token. Raises BadRequest for a token of another list, Expired past the list window."""
    try:
        data = base64.urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4))
        found = msgspec.msgpack.decode(data, type=Continuation)
    except (ValueError, msgspec.DecodeError) as error:
        raise BadRequest("invalid continue token: continue key is not valid: it cannot be decoded") from error
    if found.version != _VERSION or found.fingerprint != mark:
        raise BadRequest("invalid continue token: continue key is not valid: it belongs to another list")
    if found.revision and time.time() - found.moment > window_s:
        raise expired(found)
    return found


def expired(found: Continuation) -> Expired:
    """Return the 410 with the token for an inconsistent continuation from the latest state."""
    error = Expired(_EXPIRED)
    error.continue_token = issue(0, 0, found.fingerprint, found.after)
    return error
