"""Python calls an operation: `python -m loadtest.calls` writes the table of `CALLS.md`.

Each operation runs many times over one connection, after as many that fill caches. Calls are those of the whole shard,
controllers included, but not of its publisher.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import uvloop

from atoll.machinery.meta.objects import Object
from atoll.machinery.process import logging
from harness.clients.exports import BINDINGS, EXPORTS, SCHEMAS, binding, export, schema
from loadtest.bench import config_map, workspace
from loadtest.counted_parts import proxied_get, publish
from loadtest.counted_shard import CountedShard, counted_shard
from loadtest.counting import CallCounter

TABLE = Path(__file__).with_name("CALLS.md")
_HEAD = (
    "# Python calls an operation",
    "",
    "Written in the tests' environment by `PYTHONPATH=services:tests:. python -m loadtest.calls --write`. A test",
    "holds each within 2 %, publishing within 5 %: who changes one, writes it again.",
    "A call is a Python function entered, or a coroutine resumed, anywhere in the server but in the event loop and in",
    "nats-py. A create, an update, a patch and a delete include what controllers do with the event; nothing includes",
    "the publisher, which has a row of its own.",
    "",
    "| operation | calls |",
    "|---|---|",
)
TIMES, _HEAVY, _WATCHERS = 12, 5, 10
_MAPS = "/clusters/root/api/v1/namespaces/default/configmaps"
_NAMES = (f"n{number:06}" for number in count())

_WORKSPACES = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces"

Step = Callable[[str], Awaitable[object]]
Operation = Callable[[CountedShard], Awaitable[float]]


async def _each(shard: CountedShard, work: Step, prepare: Step | None = None, times: int = TIMES) -> float:
    """Calls of one run of `work`, until the controllers are idle; `prepare` runs before it and is not counted.

    Both get a name that no other run has. The least counts: timers, and a socket read in parts, add to the others, on
    a busy machine to most of them.
    """
    found = []
    for _ in range(times):
        name = next(_NAMES)
        if prepare is not None:
            await prepare(name)
            await shard.idle()
        with shard.counter.counting() as counted:
            await work(name)
            await shard.idle()
        found.append(counted())
    return min(found)


async def _get(shard: CountedShard) -> float:
    path = await _stored(shard)
    return await _each(shard, lambda name: shard.ask("GET", path))


async def _create(shard: CountedShard) -> float:
    return await _each(shard, lambda name: shard.ask("POST", _MAPS, config_map(name)))


async def _update(shard: CountedShard) -> float:
    path = await _stored(shard)
    return await _each(shard, lambda name: shard.ask("PUT", path, config_map(path.rpartition("/")[2], salt=name)))


async def _merge_patch(shard: CountedShard) -> float:
    path = await _stored(shard)
    kind = "application/merge-patch+json"
    return await _each(shard, lambda name: shard.ask("PATCH", path, {"data": {"salt": name}}, kind))


async def _apply(shard: CountedShard) -> float:
    path = await _stored(shard)
    name = path.rpartition("/")[2]
    target, kind = f"{path}?fieldManager=loadtest&force=true", "application/apply-patch+yaml"
    return await _each(shard, lambda salt: shard.ask("PATCH", target, config_map(name, salt=salt), kind))


async def _delete(shard: CountedShard) -> float:
    return await _each(
        shard,
        lambda name: shard.ask("DELETE", f"{_MAPS}/{name}"),
        lambda name: shard.ask("POST", _MAPS, config_map(name)),
    )


async def _list_item(shard: CountedShard) -> float:
    """By lists of two lengths: what one more item takes."""
    path = "/clusters/root/api/v1/namespaces/lists/configmaps"
    await shard.ask("POST", "/clusters/root/api/v1/namespaces", _namespace("lists"))
    await shard.idle()
    taken = []
    for length in (100, 400):
        for _ in range(length - len((await shard.ask("GET", path))["items"])):
            await shard.ask("POST", path, config_map(next(_NAMES)))
        await shard.idle()
        taken.append(await _each(shard, lambda name: shard.ask("GET", path), times=_HEAVY))
    return (taken[1] - taken[0]) / 300


async def _watch_event(shard: CountedShard) -> float:
    """By creates before and beside watchers: what one event takes for one watcher."""
    path = "/clusters/root/api/v1/namespaces/watches/configmaps"
    await shard.ask("POST", "/clusters/root/api/v1/namespaces", _namespace("watches"))

    async def create(name: str) -> None:
        await shard.ask("POST", path, config_map(name))

    alone = await _each(shard, create)
    async with shard.watching(f"{path}?watch=true", _WATCHERS) as seen:

        async def create_and_see(name: str) -> None:
            await create(name)
            await seen(name)

        return (await _each(shard, create_and_see) - alone) / _WATCHERS


async def _workspace(shard: CountedShard) -> float:
    return await _each(shard, lambda name: shard.ask("POST", _WORKSPACES, workspace(name)), times=_HEAVY)


async def _bind(shard: CountedShard) -> float:
    """Binding an export of root in a new workspace."""
    small = schema("circles")
    await shard.ask("POST", f"/clusters/root{SCHEMAS}", small)
    await shard.ask("POST", f"/clusters/root{EXPORTS}", export("shapes", small))
    return await _each(
        shard,
        lambda name: shard.ask("POST", f"/clusters/root:{name}{BINDINGS}", binding("root", "shapes")),
        lambda name: shard.ask("POST", _WORKSPACES, workspace(name)),
        _HEAVY,
    )


async def _stored(shard: CountedShard) -> str:
    name = next(_NAMES)
    await shard.ask("POST", _MAPS, config_map(name))
    return f"{_MAPS}/{name}"


def _namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


#: In the order of the table.
OPERATIONS: dict[str, Operation] = {
    "GET": _get,
    "LIST, an item": _list_item,
    "create": _create,
    "update": _update,
    "merge patch": _merge_patch,
    "apply": _apply,
    "delete": _delete,
    "watch event, a watcher": _watch_event,
    "workspace": _workspace,
    "bind": _bind,
}


async def measure() -> dict[str, float]:
    """Count the calls of each operation."""
    logging.configure("error")
    counter = CallCounter()
    counter.install()
    try:
        with tempfile.TemporaryDirectory(prefix="calls-") as directory:
            place = Path(directory)
            async with counted_shard(place / "shard", counter) as shard:
                found = {name: await operation(shard) for name, operation in OPERATIONS.items()}
                found["publish"] = await publish(shard, place)
            found["proxied GET"] = await proxied_get(counter, place)
            return found
    finally:
        counter.remove()


def table(found: dict[str, float]) -> str:
    """The file that stands beside this module."""
    rows = [f"| {name} | {calls:.4g} |" for name, calls in found.items()]
    return "\n".join([*_HEAD, *rows, ""])


def parse(text: str) -> dict[str, float]:
    """Calls of each operation, from a table."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {name: float(calls) for name, calls in rows[1:]}


def recorded() -> dict[str, float]:
    """Calls of each operation as the file has them."""
    return parse(TABLE.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(prog="loadtest.calls", description="Python calls an operation.")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    text = table(uvloop.run(measure()))
    if parser.parse_args().write:
        TABLE.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
