"""What a request to follow events asks for: its query, and the forms of the answer.

    GET .../follow?resource=<plural.group>[&resource=...][&identity=<hash>][&since=now|<duration>|<id>,...][&full=true]
        [&previous=true]

`view` reads it, `follow` serves it. Invariant: what the rules of a subscription refuse is refused here too.
"""

from __future__ import annotations

import re
import time
from urllib.parse import parse_qsl

import msgspec

from atoll.machinery.meta.status import BadRequest
from atoll.machinery.meta.user import User
from atoll.machinery.stream.tenants.structured_events import parse_mark
from atoll.machinery.stream.tenants.subscriptions import SubscriptionRequest
from atoll.machinery.wire.exchange import HttpRequest
from atoll.shard.subscriptions.access_check import Question

JSON_LINES, SERVER_SENT_EVENTS = "application/x-ndjson", "text/event-stream"
_NAMES = frozenset({"resource", "identity", "since", "full", "previous"})
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smh])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_MAX_FIELDS = 32
#: Shards of which an answer may go on.
_MAX_MARKS = 256


class Start(msgspec.Struct, frozen=True):
    """Where to begin: after the shard's own of some marks (uid, lineage, revision), or `ago_s` seconds ago without."""

    ago_s: int = 0
    marks: tuple[tuple[str, str, int], ...] = ()

    def moment(self) -> int:
        """The revision of that moment, for a beginning without a mark."""
        return int((time.time() - self.ago_s) * 1_000_000)


class FollowRequest(msgspec.Struct, frozen=True):
    """A valid request. `previous`: with the object before each change, which needs a question that asks for `full`."""

    question: Question
    start: Start
    previous: bool
    media_type: str


def follow_request(http: HttpRequest, cluster: str, user: User) -> FollowRequest:
    """Read a request. Raises BadRequest."""
    asked = _query(http)
    resources = tuple(value for name, value in asked if name == "resource")
    single = {name: value for name, value in asked if name != "resource"}
    full, previous = (_boolean(single, name) for name in ("full", "previous"))
    if previous and not full:
        raise BadRequest("previous=true needs full=true")
    identity = single.get("identity", "")
    _check(resources, identity)
    seen = http.headers.get("last-event-id", [])
    start = _start(seen[-1] if seen and seen[-1] else single.get("since", "now"))
    question = Question(cluster, user, resources, identity, full)
    return FollowRequest(question, start, previous, _media_type(http))


def _query(http: HttpRequest) -> list[tuple[str, str]]:
    try:
        text = http.target.partition(b"?")[2].decode("ascii")
        asked = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise BadRequest(f"the query cannot be read: {error}") from error
    names = [name for name, _ in asked]
    unknown = sorted(set(names) - _NAMES)
    if unknown:
        raise BadRequest(f"unknown parameters: {', '.join(unknown)[:200]}")
    repeated = sorted({name for name in names if name != "resource" and names.count(name) > 1})
    if repeated:
        raise BadRequest(f"given more than once: {', '.join(repeated)}")
    return asked


def _check(resources: tuple[str, ...], identity: str) -> None:
    """Raise BadRequest for what a subscription could not ask for."""
    document: dict[str, object] = {"name": "follow", "resources": resources}
    if identity:
        document["identity"] = identity
    try:
        msgspec.convert(document, SubscriptionRequest)
    except msgspec.ValidationError as error:
        raise BadRequest(f"resource or identity: {error}") from error


def _boolean(single: dict[str, str], name: str) -> bool:
    text = single.get(name, "false")
    if text not in _BOOLEANS:
        raise BadRequest(f"{name}: {text[:64]!r} is neither true nor false")
    return _BOOLEANS[text]


def _start(text: str) -> Start:
    if text == "now":
        return Start()
    if (ago := _DURATION.match(text)) is not None:
        return Start(int(ago[1]) * _SECONDS[ago[2]])
    try:
        return Start(0, tuple(map(parse_mark, text.split(",", _MAX_MARKS))))
    except ValueError as error:
        raise BadRequest(f"since: {text[:64]!r} is not now, a duration such as 30m, or ids of events") from error


def _media_type(http: HttpRequest) -> str:
    accepted = ",".join(http.headers.get("accept", []))
    return SERVER_SENT_EVENTS if SERVER_SENT_EVENTS in accepted else JSON_LINES
