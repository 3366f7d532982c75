"""`atoll start` in a terminal: its log is coloured text, with requests only if a flag enables them."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.servers.shard_process import ShardProcess

pytestmark = pytest.mark.long

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class Screen:
    """A pseudo-terminal; `text` is its output."""

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()
        self.path = Path(os.ttyname(self._theirs))
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # Reading fails with EIO once the last writer has closed.
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65536):
                self.text += data.decode(errors="replace")

    @property
    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", self.text).replace("\r\n", "\n")

    def close(self) -> None:
        os.close(self._theirs)
        self._reader.join(60)
        os.close(self._ours)


@pytest.fixture
def screen() -> Iterator[Screen]:
    found = Screen()
    yield found
    found.close()


def started(directory: Path, screen: Screen, *flags: str) -> ShardProcess:
    shard = ShardProcess(directory, *flags, environment={"NO_COLOR": "", "TERM": "xterm"})
    shard.stderr_path = screen.path
    return shard


def test_a_person_sees_events_and_no_requests(tmp_path: Path, screen: Screen) -> None:
    gates = "CacheAPIs=true,WorkspaceMounts=true,APIServerTracing=true"
    with started(tmp_path, screen, "--feature-gates", gates, "--external-hostname", "a.example") as shard:
        Api(shard, "root").post(CONFIGMAPS, configmap("written"))
        eventually(lambda: "nats server ready" in screen.plain)
    assert "\x1b[" in screen.text
    assert re.search(r"^\d\d:\d\d:\d\d \[info +\] bootstrapped +objects=\d+ shard=root$", screen.plain, re.MULTILINE)
    assert re.findall(r"feature gate has no effect +gate=(\w+)", screen.plain) == ["CacheAPIs", "APIServerTracing"]
    assert re.search(r"setting has no effect +setting=external-hostname", screen.plain)
    assert CONFIGMAPS not in screen.plain
    assert "{" not in screen.plain


def test_a_person_who_asks_for_requests_sees_them(tmp_path: Path, screen: Screen) -> None:
    with started(tmp_path, screen, "--log-requests", "all") as shard:
        api = Api(shard, "root")
        api.post(CONFIGMAPS, configmap("written"))
        api.get(f"{CONFIGMAPS}/written")
        pattern = r"\] request +verb=(create|get) cluster=\S+ path=" + CONFIGMAPS
        eventually(lambda: re.findall(pattern, screen.plain) == ["create", "get"])


def test_a_terminal_gets_json_if_asked_for(tmp_path: Path, screen: Screen) -> None:
    with started(tmp_path, screen, "--log-format", "json") as shard:
        Api(shard, "root").post(CONFIGMAPS, configmap("written"))
        eventually(lambda: '"verb":"create"' in screen.plain)
    assert all(line.startswith("{") for line in screen.plain.splitlines())
