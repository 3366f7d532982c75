"""Events that are followed over HTTP, as JSON lines or as server-sent events."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from harness.clients.api import Api, Object

Event = dict[str, Any]


class Followed:
    """The documents of one answer, in order."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.media_type = response.headers["content-type"]
        #: Where to go on, of server-sent events.
        self.last_id = ""

    def next(self) -> Event:
        """The next document; fails after the connection's timeout, or if the stream ended."""
        event = self._read()
        assert event is not None, "the stream ended"
        return event

    def until(self, operation: str) -> list[Event]:
        """The documents up to the first one of an operation, with it."""
        found = [self.next()]
        while found[-1]["atolloperation"] != operation:
            found.append(self.next())
        return found

    def changes(self, count: int) -> list[Event]:
        """The next documents about objects."""
        found: list[Event] = []
        while len(found) < count:
            if "subject" in (event := self.next()):
                found.append(event)
        return found

    def rest(self) -> list[Event]:
        """All documents until the server ends the stream."""
        return list(iter(self._read, None))

    def _read(self) -> Event | None:
        line = self._response.readline()
        if not line:
            return None
        if self.media_type != "text/event-stream":
            return dict(json.loads(line))
        data, end = self._response.readline(), self._response.readline()
        event = dict(json.loads(data.removeprefix(b"data: ")))
        self.last_id = line.decode().removeprefix("id: ").rstrip("\n")
        assert event["id"] in self.last_id.split(",") and end == b"\n"
        return event


def path(cluster: str, *resources: str, **query: str) -> str:
    """The path that follows events of these resources in a workspace."""
    pairs = [*(("resource", each) for each in resources), *query.items()]
    return f"/services/events/clusters/{cluster}/follow?{urlencode(pairs)}"


@contextlib.contextmanager
def follow(api: Api, target: str, **headers: str) -> Iterator[Followed]:
    """Follow as a user, whose requests are of paths as they are; ends with the context."""
    connection = api.open()
    with contextlib.closing(connection):
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", target, headers=api.headers(more=more))
        response = connection.getresponse()
        assert response.status == 200, response.read()[:2000]
        yield Followed(response)


def refusal(api: Api, target: str) -> tuple[int, Object]:
    """The code and the Status of a request to follow that is refused."""
    answer = api.get(target, expect=0)
    return answer.code, dict(answer.json)
