"""How long a server keeps others waiting: /livez, asked about 50 times a second on a connection of its own.

with LoopProbe(api, pid) as probe:
    ...
probe.worst_s
"""

from __future__ import annotations

import threading
import time
from typing import Self

from harness.clients.api import Api

#: Between two questions.
PAUSE_S = 0.02


class LoopProbe:
    """Asks until it is left. `worst_s`: the longest wait for an answer, as far as the server itself computed in it.

    On a machine with other work an answer also waits for a processor; such time is not the server's.
    """

    def __init__(self, api: Api, pid: int) -> None:
        self._api = Api(api.shard, "", "", api.token)
        self._cpu_clock = (~pid << 3) | 2
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="probe", daemon=True)
        self.worst_s = 0.0
        self.answers = 0

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
