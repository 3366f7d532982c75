"""Measures how long a server blocks others: GET /livez about 50 times a second on its own connection.

with LoopProbe(api, pid) as probe:
    ...
probe.worst_s
"""

from __future__ import annotations

import threading
import time
from typing import Self

from harness.clients.api import Api

#: The pause between two requests.
PAUSE_S = 0.02


class LoopProbe:
    """Sends requests until the context ends. `worst_s`: the longest response time, limited to the server's CPU time in
    it.

    On a busy machine a response also waits for a processor; that time does not count.
    """

    def __init__(self, api: Api, pid: int) -> None:
        self._api = Api(api.shard, "", "", api.token)
        self._cpu_clock = (~pid << 3) | 2
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="probe", daemon=True)
        self.worst_s = 0.0
        self.answers = 0

    @classmethod
    def over(cls, api: Api, pid: int) -> Self:
        """A probe over the connection that `api` has, to one of several processes of a server."""
        probe = cls(api, pid)
        probe._api = api
        return probe

    def __enter__(self) -> Self:
        self._once()
        self.worst_s = 0.0
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._left.set()
        self._thread.join()
        self._api.close()

    def _ask(self) -> None:
        while not self._left.wait(PAUSE_S):
            self._once()

    def _once(self) -> None:
        start_s, computed_s = time.monotonic(), time.clock_gettime(self._cpu_clock)
        self._api.get("/livez")
        waited_s = time.monotonic() - start_s
        self.worst_s = max(self.worst_s, min(waited_s, time.clock_gettime(self._cpu_clock) - computed_s))
        self.answers += 1
