"""The programs of docs/events.md, with plain NATS clients in three languages, as printed there."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.clients.go_programs import program
from harness.clients.node_programs import packages
from harness.environment import TESTS
from harness.servers.stand_ins.events_service import CLUSTER, WORKSPACE, EventsService, events_service

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
async def test_a_plain_client_prints_each_change_and_acknowledges_it(
    command: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    words = await asyncio.to_thread(command, tmp_path)
    async with events_service(tmp_path, full=False) as service:
        entries = [service.put("a"), service.put("b")]
        await service.publish(*entries)
        lines = await printed(words, service, tmp_path, len(entries))
        await service.acknowledged()
    assert lines == [f"ADDED {CLUSTER}/core//configmaps/default/{each.key.name} {each.revision}" for each in entries]


async def printed(words: list[str], service: EventsService, directory: Path, count: int) -> list[str]:
    """The first lines that a program prints; it runs until its events are acknowledged."""
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
        async with asyncio.timeout(60):
            lines = [(await process.stdout.readline()).decode().rstrip() for _ in range(count)]
        await service.acknowledged()
    finally:
        process.kill()
        await process.communicate()
    return lines
