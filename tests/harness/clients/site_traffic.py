"""Clients of a site while its processes are replaced: each writes and reads in one workspace, or watches it.

A request is short: it has a connection of its own. Where a front proxy refuses the connection, the other one is tried,
as a load balancer does. A request that is answered 503 with `Retry-After` while the workspace's own shard is away is
asked again, as client-go does. Nothing else is repeated, and everything else is a failure.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import threading
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from harness.clients.api import configmap
from harness.clients.site_operations import MAPS
from harness.servers.site import Endpoint

TIMEOUT_S = 60.0
#: Between two rounds of a client, so that the load leaves room for the processes that start.
PAUSE_S = 0.05
#: A client that failed so often gives up.
MOST_FAILURES = 5


class Balancer:
    """Connections to whichever front proxy takes them, in turn.

    While `forgives`, a front proxy ends that closes connections whose first request has not arrived yet: such a request
    is sent again.
    """

    def __init__(self, proxies: Sequence[Endpoint]) -> None:
        self._proxies, self._turn = proxies, itertools.count()
        self.forgives = False

    def connect(self) -> http.client.HTTPSConnection:
        """A connection; raises ConnectionRefusedError if all refuse."""
        first = next(self._turn)
        for number in range(len(self._proxies)):
            proxy = self._proxies[(first + number) % len(self._proxies)]
            parts = urlsplit(proxy.url)
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=TIMEOUT_S, context=proxy.tls()
            )
            with contextlib.suppress(ConnectionRefusedError):
                connection.connect()
                return connection
        raise ConnectionRefusedError("no front proxy takes a connection")


class Client(threading.Thread):
    """One client, until it is stopped; `failures` are all that did not succeed."""

    def __init__(self, balancer: Balancer, path: str, is_away: Callable[[], bool]) -> None:
        super().__init__(name=f"{type(self).__name__} {path}", daemon=True)
        self._balancer, self._path, self._is_away = balancer, path, is_away
        self.over = threading.Event()
        self.done = 0
        self.failures: list[str] = []

    def run(self) -> None:
        while not self.over.wait(PAUSE_S) and len(self.failures) < MOST_FAILURES:
            try:
                self.once()
                self.done += 1
            except (OSError, http.client.HTTPException, AssertionError) as error:
                if self._balancer.forgives and not isinstance(error, AssertionError):
                    continue
                self.failures.append(f"{self.name} after {self.done}: {error!r}")

    def once(self) -> None:
        """Do what the client does, once."""
        raise NotImplementedError

    def stop(self) -> None:
        self.over.set()
        self.join(TIMEOUT_S)

    def ask(self, method: str, name: str, wanted: int, body: object = None) -> None:
        """Send a short request, and check the code of its answer."""
        while True:
            away, forgives = self._is_away(), self._balancer.forgives
            try:
                with contextlib.closing(self._balancer.connect()) as connection:
                    sent = json.dumps(body) if body is not None else None
                    connection.request(method, self.at(name), sent, {"content-type": "application/json"})
                    response = connection.getresponse()
                    text = response.read()
            except (OSError, http.client.HTTPException):
                if forgives or self._balancer.forgives:
                    continue
                raise
            if response.status == wanted:
                return
            again = response.status == 503 and response.headers["retry-after"] and (away or self._is_away())
            assert again, (method, name, response.status, text[:300])
            self.over.wait(PAUSE_S)

    def at(self, rest: str) -> str:
        """The path of a ConfigMap, or of all with a query."""
        return f"/clusters/{self._path}{MAPS}{rest}"


class Writer(Client):
    """Creates ConfigMaps, each with a name of its own, and reads them; `acknowledged` are those that were created."""

    def __init__(self, balancer: Balancer, path: str, is_away: Callable[[], bool]) -> None:
        super().__init__(balancer, path, is_away)
        self.acknowledged: list[str] = []

    def once(self) -> None:
        name = f"w{len(self.acknowledged)}-{len(self.failures)}"
        self.ask("POST", "", 201, configmap(name))
        self.acknowledged.append(name)
        self.ask("GET", f"/{name}", 200)


class Watcher(Client):
    """Watches ConfigMaps from the first list on, and goes on at its last revision; `seen` has each that was added."""

    def __init__(self, balancer: Balancer, path: str, is_away: Callable[[], bool]) -> None:
        super().__init__(balancer, path, is_away)
        self.seen: list[str] = []
        self._revision = ""

    def once(self) -> None:
        with contextlib.closing(self._balancer.connect()) as connection:
            query = f"?watch=1&allowWatchBookmarks=true&resourceVersion={self._revision}"
            connection.request("GET", self.at(query if self._revision else ""))
            response = connection.getresponse()
            if response.status != 200:
                text = response.read()
                assert response.status == 503 and self._is_away(), (response.status, text[:300])
                return
            if not self._revision:
                self._revision = str(json.loads(response.read())["metadata"]["resourceVersion"])
                return
            self._follow(response)

    def _follow(self, response: http.client.HTTPResponse) -> None:
        """Read events until the server ends the watch, as it may at any time."""
        while not self.over.is_set():
            try:
                line = response.readline()
            except (OSError, http.client.HTTPException):
                return
            if not line.endswith(b"\n"):
                return
            event = json.loads(line)
            assert event["type"] in {"ADDED", "BOOKMARK"}, event
            metadata = event["object"]["metadata"]
            self._revision = str(metadata["resourceVersion"])
            if event["type"] == "ADDED":
                self.seen.append(str(metadata["name"]))
