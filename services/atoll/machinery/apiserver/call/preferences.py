"""What the headers of a request say about its reply, and of its sender: read once for requests with the same headers.

The pipeline reads them; the request, its handlers and its replies use them. They depend on headers alone, and not on
Content-Length.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.wellknown import FENCE_HEADER
from atoll.machinery.wire.compress import accepts_gzip
from atoll.machinery.wire.exchange import HttpRequest

_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
#: As in kcp, a review by system:masters with this header skips the check for access to the workspace.
DEEP_HEADER = "x-kcp-internal-deep-subjectaccessreview"
_MAX_AUDIT_ID, _MAX_FENCE_DIGITS = 64, 15


class Preferences(msgspec.Struct, frozen=True):
    """`audit_id` is empty without one of the client's; `deep` asks for a deep access review."""

    audit_id: str
    accept: str
    content_type: str
    user_agent: str
    #: The client shows replies to people, who get indented JSON.
    by_people: bool
    gzip: bool
    deep: bool
    #: 0 without one; below 0 for what is no token, with which nothing is written.
    fencing_token: int


def preferences_of(http: HttpRequest) -> Preferences:
    """Return the preferences of a request."""
    header, shared = http.header, http.header_set
    user_agent = header("user-agent")
    found = Preferences(
        header("audit-id")[:_MAX_AUDIT_ID],
        header("accept"),
        header("content-type"),
        user_agent,
        user_agent.startswith(_READ_BY_PEOPLE),
        accepts_gzip(http.headers.get("accept-encoding", ())),
        header(DEEP_HEADER) == "true",
        _fencing_token(header(FENCE_HEADER)),
    )
    if shared is not None:
        shared.preferences = found
    return found


def _fencing_token(text: str) -> int:
    if not text:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_FENCE_DIGITS else -1
