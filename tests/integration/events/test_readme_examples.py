"""The programs in the README of `atoll.events`, run as printed against a real `atoll start`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.servers.shard_process import ShardProcess

ROOT = Path(__file__).parents[3]
README = ROOT / "services/atoll/events/README.md"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def program(mark: str, page: Path = README) -> str:
    """The first Python block after a marker."""
    block = page.read_text().partition(mark)[2].partition("```python\n")[2].partition("```")[0]
    assert block, f"the README has a program behind {mark!r}"
    return block


@asynccontextmanager
async def running(source: str, directory: Path) -> AsyncIterator[asyncio.StreamReader]:
    """The output of a program while it runs; the program is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-c", source, cwd=directory, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield process.stdout
    finally:
        process.kill()
        await process.communicate()


async def line_with(output: asyncio.StreamReader, text: str) -> list[str]:
    """Return the lines up to the first that contains a text."""
    lines: list[str] = []
    while not lines or text not in lines[-1]:
        line = await output.readline()
        assert line, f"the program ended without {text!r}: {lines[-5:]}"
        lines.append(line.decode().rstrip())
    return lines


async def keep_writing(api: Api) -> None:
    """Write objects until cancelled: only a program knows when its subscription begins."""
    for number in range(1000):
        await asyncio.to_thread(api.post, CONFIGMAPS, configmap(f"seen-{number}", {"a": "1"}))
        await asyncio.sleep(0.3)


@pytest.fixture
def shard(tmp_path: Path) -> ShardProcess:
    (tmp_path / ".atoll").symlink_to(tmp_path / "atoll")
    return ShardProcess(tmp_path)


@pytest.mark.parametrize(
    ("mark", "page"),
    [("# Changes of a shard", README), ("## See it on the stream", ROOT / "README.md")],
    ids=["of the package", "of the first page"],
)
async def test_the_first_example_prints_each_change(shard: ShardProcess, tmp_path: Path, mark: str, page: Path) -> None:
    async with shard:
        await asyncio.to_thread(eventually, (shard.root / "stream.json").exists, "stream.json")
        async with running(program(mark, page), tmp_path) as output:
            writing = asyncio.create_task(keep_writing(Api(shard, "root")))
            try:
                lines = await line_with(output, "name='seen-")
            finally:
                writing.cancel()
    assert all(line.startswith("ADDED ObjectKey(") or line.startswith("MODIFIED ObjectKey(") for line in lines), lines


@pytest.mark.long
async def test_the_second_example_goes_on_where_it_was_killed(shard: ShardProcess, tmp_path: Path) -> None:
    source = program("<!-- example: resume -->")
    async with shard:
        api = Api(shard, "root")
        await asyncio.to_thread(eventually, (shard.root / "stream.json").exists, "stream.json")
        await asyncio.to_thread(api.post, CONFIGMAPS, configmap("first"))
        async with running(source, tmp_path) as output:
            before = await line_with(output, "root/default/first ")
        await asyncio.to_thread(api.post, CONFIGMAPS, configmap("second"))
        async with running(source, tmp_path) as output:
            after = await line_with(output, "root/default/second ")
    repeated = set(before) & set(after)
    assert repeated <= {before[-1]}, "only the last event, whose position may not have been kept, comes again"
    assert not any(line.startswith("RESYNC") for line in before + after)
