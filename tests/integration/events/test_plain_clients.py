"""The programs of docs/events.md, with plain NATS clients in three languages, as printed there."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atoll.machinery.stream.publisher.log_events import from_entry
from atoll.machinery.stream.subjects import CHANGES
from harness.clients.go_programs import program
from harness.clients.node_programs import packages
from harness.environment import TESTS
from harness.models.shard_log import Entry, Source
from harness.servers.stand_ins.events_service import CLUSTER, WORKSPACE, EventsService, events_service
from harness.waits import until

EXAMPLES = TESTS.parent / "docs" / "examples" / "events"
GUIDE = TESTS.parent / "docs" / "events.md"
SOURCES = {
    "python": EXAMPLES / "subscriber.py",
    "go": TESTS / "go" / "events" / "cmd" / "subscriber" / "main.go",
    "javascript": EXAMPLES / "subscriber.mjs",
}


def python(_: Path) -> list[str]:
    return [sys.executable, str(SOURCES["python"])]


def go(_: Path) -> list[str]:
    return [str(program("subscriber", "events"))]


def javascript(directory: Path) -> list[str]:
    """Node.js looks for packages beside the program."""
    (directory / "node_modules").symlink_to(packages() / "node_modules")
    return ["node", str(shutil.copy(SOURCES["javascript"], directory / "subscriber.mjs"))]


@pytest.mark.parametrize("language", SOURCES)
def test_the_guide_prints_the_whole_program(language: str) -> None:
    source = SOURCES[language].read_text()
    assert f"```{language}\n{source}```" in GUIDE.read_text()
    assert len(source.splitlines()) <= 75


@pytest.mark.parametrize("command", [python, go, javascript], ids=lambda command: command.__name__)
async def test_a_plain_client_prints_and_acknowledges_the_changes_of_all_shards_also_of_one_that_joins(
    command: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    words = await asyncio.to_thread(command, tmp_path)
    async with events_service(tmp_path, full=False) as service:
        first, last = [service.put("a"), service.put("b")], [service.put("c"), service.put("d")]
        await service.publish(*first)
        async with running(words, service, tmp_path) as output:
            lines = await printed(output, [])
            assert lines == [line_of(each) for each in first]
            await service.acknowledged()
            await service.join("east")
            await until(service.began_again, "the program has ended its connection and begun again")
            await service.publish(last[0])
            await service.send(from_entry(CHANGES, Source("east"), last[1]))
            assert set(await printed(output, lines)) == {line_of(each) for each in last}
            await service.acknowledged()


def line_of(entry: Entry) -> str:
    return f"ADDED {CLUSTER}/core//configmaps/default/{entry.key.name} {entry.revision}"


@asynccontextmanager
async def running(words: list[str], service: EventsService, directory: Path) -> AsyncIterator[asyncio.StreamReader]:
    """A program beside the service; what it prints."""
    environment = {
        **os.environ,
        "SERVER": f"https://127.0.0.1:{service.api.port}",
        "WORKSPACE": WORKSPACE,
        "TOKEN": "secret",
        "CA_FILE": str(directory / "ca.crt"),
        "SSL_CERT_FILE": str(directory / "ca.crt"),
    }
    process = await asyncio.create_subprocess_exec(*words, env=environment, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        await process.communicate()


async def printed(output: asyncio.StreamReader, earlier: list[str]) -> list[str]:
    """The next two lines that are no repetition: an event whose acknowledgement is late comes again."""
    lines = dict.fromkeys(earlier)
    async with asyncio.timeout(60):
        while len(lines) < len(earlier) + 2:
            lines[(await output.readline()).decode().rstrip()] = None
    return list(lines)[len(earlier) :]
