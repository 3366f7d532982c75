"""`atoll.events` is light: importing it loads no store, no event loop, no NATS client and no API server."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SHOW = "import sys, {}; print('\\n'.join(sys.modules))"
_HEAVY = ("lmdb", "uvloop", "httptools", "nats", "cryptography", "yaml", "re2", "prometheus_client")
_SERVER = (
    "atoll.shard",
    "atoll.controllers",
    "atoll.replication",
    "atoll.machinery.apiserver",
    "atoll.machinery.control",
    "atoll.machinery.storage",
    "atoll.machinery.wire",
    "atoll.machinery.kcp",
    "atoll.machinery.kinds",
    "atoll.machinery.stream.publisher",
    "atoll.machinery.stream.server",
)


def loaded_by(module: str) -> set[str]:
    command = [sys.executable, "-c", _SHOW.format(module)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(shown.stdout.splitlines())


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return loaded_by("atoll.events")


@pytest.mark.parametrize("name", (*_HEAVY, *_SERVER))
def test_the_package_of_third_parties_does_not_load(name: str, loaded: set[str]) -> None:
    assert "atoll.events.reader" in loaded
    assert name not in loaded


def test_a_subscriber_loads_a_client_and_nothing_of_a_server() -> None:
    """What `subscribe` loads once it is called."""
    loaded = loaded_by("atoll.events.subscriber")
    assert "atoll.machinery.client.client" in loaded
    server = {each for each in _SERVER if each != "atoll.machinery.wire"} | {"atoll.machinery.wire.server"}
    assert not loaded & (server | {"lmdb", "uvloop", "nats", "cryptography"})
