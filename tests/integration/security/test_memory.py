"""Texts chosen by clients are not cached without bound: one anonymous connection cannot make a process grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from atoll.machinery.meta.objects import Object
from harness.clients.raw_http import RawClient
from harness.servers.in_process.front_proxy import echoing, front
from harness.servers.shard_process import ShardProcess

#: Each request of a kind is some 30 KB; without bounds a process keeps them, or ten times as much.
REQUESTS, WARM = 300, 50
ALLOWED_BYTES = 6 << 20


def resident_bytes(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def queries(number: int) -> tuple[str, str]:
    return f"/api?{'&'.join(f'field{index:05}=valuevaluevalueva' for index in range(980))}&u={number}", ""


def paths(number: int) -> tuple[str, str]:
    return f"/apis/{'g' * 10_000}/v1/{'r' * 20_000}{number}", ""


def documents(number: int) -> tuple[str, str]:
    return f"/{'p' * 30_000}{number}", ""


def accepted(number: int) -> tuple[str, str]:
    return "/api", f"Accept: {'a/b,' * 1000}c/d;n={number}\r\n"


def header_names(number: int) -> tuple[str, str]:
    return "/api", f"x-{number}{'-n' * 15_000}: v\r\n"


def agents(number: int) -> tuple[str, str]:
    return "/api", f"User-Agent: {'a' * 30_000}{number}\r\n"


KINDS = (queries, paths, documents, accepted, header_names, agents)


def trials() -> Iterator[tuple[str, str]]:
    for number in range(REQUESTS):
        for kind in KINDS:
            yield kind(number)


async def grown(client: RawClient, pid: int | str, seen: list[Object]) -> int:
    """Send every trial; how many bytes the process took after the first rounds. `seen`: kept by the harness."""
    before = 0
    for number, (target, headers) in enumerate(trials()):
        await client.ask(target, headers=headers)
        seen.clear()
        if number == WARM * len(KINDS):
            before = resident_bytes(pid)
    return resident_bytes(pid) - before


@pytest.mark.long
async def test_a_shard_keeps_no_text_of_strangers(shard: ShardProcess) -> None:
    client = await RawClient.connect(urlsplit(shard.url).port or 0, shard.tls())
    assert await grown(client, shard.pid, []) < ALLOWED_BYTES
    client.close()


@pytest.mark.long
async def test_a_front_proxy_keeps_no_text_of_strangers(tmp_path: Path) -> None:
    async with echoing() as backend, front(tmp_path, {"root": backend.url}) as proxy:
        assert await grown(await proxy.connect(), "self", backend.seen) < ALLOWED_BYTES
