"""Sealing keys of a running shard are replaced and dropped while Secrets are written, of which none is lost."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from harness.clients.api import Api, eventually
from harness.servers.processes import atoll
from harness.servers.shard_process import ShardProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SECRETS = "/api/v1/namespaces/default/secrets"
WRITERS, ROUNDS = 3, 3
#: Before-images under an earlier key leave the log soon.
RETENTION = ("--list-window", "1", "--log-retention", "2")
DROP_S = 120.0


class Writer(threading.Thread):
    """Creates Secrets and updates each once; `acknowledged` has the value of each by its name."""

    def __init__(self, shard: ShardProcess, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._shard, self._over = shard, threading.Event()
        self.acknowledged: dict[str, str] = {}
        self.failures: list[str] = []

    def run(self) -> None:
        with closing(Api(self._shard, "root")) as api:
            while not self._over.is_set():
                name = f"{self.name}-{len(self.acknowledged)}"
                body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"k": "first"}}
                try:
                    made = api.post(SECRETS, body, expect=201).json
                    self.acknowledged[name] = "first"
                    api.put(f"{SECRETS}/{name}", {**made, "data": {}, "stringData": {"k": name}}, expect=200)
                    self.acknowledged[name] = name
                except AssertionError as error:
                    self.failures.append(str(error))

    def stop(self) -> None:
        self._over.set()
        self.join(60)


def test_no_secret_is_lost_while_keys_are_replaced_and_dropped(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, *RETENTION) as shard:
        flags = ("--root-directory", str(shard.root), "--allow-any-filesystem")
        writers = [Writer(shard, f"w{number}") for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        refusals: list[str] = []

        def dropped(number: int) -> bool:
            ran = atoll("rotate", *flags, "--drop", str(number))
            if ran.code:
                assert "; no key was dropped" in ran.stderr, ran.stderr
                refusals.append(ran.stderr)
            return ran.code == 0

        for number in range(1, ROUNDS + 1):
            assert "is the primary key" in atoll("rotate", *flags, "--drop", str(number)).stderr
            ran = atoll("rotate", *flags)
            assert (ran.code, "all objects are sealed with it" in ran.stdout) == (0, True), ran.stderr
            eventually(partial(dropped, number), "it is dropped", DROP_S)
        for writer in writers:
            writer.stop()
        assert [failure for writer in writers for failure in writer.failures] == []
        wanted = {name: value for writer in writers for name, value in writer.acknowledged.items()}
        assert len(wanted) > WRITERS * ROUNDS
        assert any("log entries" in each for each in refusals), "some were refused for the sake of the log"
        keys = json.loads((shard.root / "sealing-keys.json").read_text())
        assert [each["id"] for each in keys["keys"]] == [ROUNDS + 1]
        # With the keys of the file alone.
        shard.restart()
        with closing(Api(shard, "root")) as api:
            read = {
                each["metadata"]["name"]: each.get("data", {}).get("k", "") for each in api.get(SECRETS).json["items"]
            }
        found = {name: base64.b64decode(value).decode() for name, value in read.items()}
        assert {name: found.get(name) for name in wanted} == wanted
    assert atoll("fsck", "--root-directory", str(shard.root)).stdout == "the store is sound\n"
