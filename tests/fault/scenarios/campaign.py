"""A campaign: a shard under eight writers and eight watchers, killed at random moments, validated at each and at the
end.

`test_kills` runs it on the product, `test_planted_bugs` on mutants of it. Void runs are run once more; a failure
leaves the history and says how to run it again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from fault.model.log import Stored, read, shard_store
from fault.recorder.history import History
from fault.traffic.fleet import Fleet
from fault.traffic.watchers import Watcher, eight
from fault.traffic.writers import Writer
from fault.validators import durability, order, watches
from fault.validators.violation import Stalled, Violation, VoidRun
from harness.seeds import replay_command
from harness.servers.nats import eventually
from harness.servers.shard_process import ShardProcess

WRITERS = 8
#: The number of acknowledged writes for each second of a plan, whatever time a busy machine takes for them.
WRITES_A_SECOND = 100
#: A run with fewer writes is void.
MIN_WRITES = 100
#: The longest time for the writes of one interval.
SLOWEST_S = 120.0
#: What watchers may take to come to the end once nothing is written; a session of two minutes does not heal meanwhile.
CATCH_UP_S = 15.0


class Plan(msgspec.Struct, frozen=True):
    """How often to kill, and how many seconds of traffic, with WRITES_A_SECOND at least, lie between two kills.

    A `survives` run ends with a shard that serves on and stops in order; another one with the last kill, which is
    all that can be asked of a shard with a bug planted in it.
    """

    kills: int
    shortest_s: float = 0.8
    longest_s: float = 2.5
    survives: bool = True


@asynccontextmanager
async def traffic(fleet: Fleet, history: History) -> AsyncIterator[None]:
    """Writers and watchers at work; ends when they are, with whatever one of them failed of."""
    watchers = [
        Watcher(watch, fleet, random.Random(f"{history.seed} {watch.name}"), by_watch)
        for watch, by_watch in eight(fleet.clusters)
    ]
    history.watches = [watcher.watch for watcher in watchers]
    writers = [
        Writer(number, fleet, history, random.Random(f"{history.seed} writer {number}")) for number in range(WRITERS)
    ]
    busy: list[Watcher | Writer] = [*watchers, *writers]
    tasks = [asyncio.create_task(each.run()) for each in busy]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run(shard: ShardProcess, plan: Plan, seed: int) -> tuple[History, Stored]:
    """Run a campaign; return the clients' history and the store's content. Raises Violation for violations at kills."""
    history, dice, fleet = History(seed), random.Random(seed), Fleet(shard)
    last: Stored | None = None
    await asyncio.to_thread(shard.start)
    try:
        await fleet.open()
        async with traffic(fleet, history):
            for left in reversed(range(plan.kills)):
                await interval(history, dice.uniform(plan.shortest_s, plan.longest_s))
                await fleet.kill()
                last = await asyncio.to_thread(validate_store, shard, last)
                if left or plan.survives:
                    await fleet.restart()
            if shard.running:
                await interval(history, plan.shortest_s)
                fleet.writable.clear()
                await eventually(lambda: not fleet.writing)
                await until_caught_up(history, shard)
                fleet.pause()
        if plan.survives:
            await a_last_write(fleet)
    finally:
        await fleet.close()
        await asyncio.to_thread(shard.stop if plan.survives else shard.kill)
    return history, await asyncio.to_thread(validate_store, shard, last)


async def interval(history: History, seconds: float) -> None:
    """Run traffic for so many seconds, and for as many writes as belong to that time."""
    goal = history.acked + round(seconds * WRITES_A_SECOND)
    await asyncio.sleep(seconds)
    await eventually(lambda: history.acked >= goal, SLOWEST_S)


async def until_caught_up(history: History, shard: ShardProcess) -> None:
    """Wait until every watcher has received the end of its scope. Raises Stalled."""
    log = (await asyncio.to_thread(read, shard_store(shard.root))).log

    def stalled() -> Stalled | None:
        try:
            for watch in history.watches:
                watches.caught_up(watch, log)
        except Stalled as error:
            return error
        return None

    with suppress(AssertionError, TimeoutError):
        await eventually(lambda: stalled() is None, CATCH_UP_S)
    if (found := stalled()) is not None:
        raise found


async def a_last_write(fleet: Fleet) -> None:
    """Check that the shard still accepts a write."""
    answer = await fleet.api.ask(
        "POST",
        f"/clusters/{fleet.clusters[0]}/api/v1/namespaces",
        b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"last"}}',
        "application/json",
    )
    assert answer.status == 201, answer.body


def validate_store(shard: ShardProcess, before: Stored | None) -> Stored:
    """Check the store after the process: it is sound, and its log is complete and only longer than before."""
    stored = read(shard_store(shard.root))
    durability.store_is_sound(stored)
    durability.replay_is_the_table(stored)
    if before is not None:
        durability.log_only_grows(before, stored)
    return stored


def validate(history: History, stored: Stored, min_writes: int = MIN_WRITES) -> None:
    """Check every promise to clients. Raises the first Violation, or VoidRun."""
    if history.acked < min_writes:
        raise VoidRun(f"{history.acked} acknowledged writes, below {min_writes}")
    if idle := [watch.name for watch in history.watches if not any(session.events for session in watch.sessions)]:
        raise VoidRun(f"{', '.join(idle)} saw nothing")
    log = stored.log
    durability.revisions_rise(history, log.revisions)
    durability.acknowledged_writes_are_logged(history, log)
    durability.unknown_writes_are_whole_or_absent(history, log)
    durability.nothing_else_is_logged(history, log)
    order.order_agrees_with_time(history, log)
    order.preconditions_held(history, log)
    order.changes_build_on_what_stood(history, log)
    order.reads_are_fresh(history, log)
    watches.all_promises(history.watches, log)


Start = Callable[[Path], ShardProcess]


async def validated_campaign(directory: Path, plan: Plan, seed: int, start: Start = ShardProcess) -> History:
    """Run and validate; repeat a void run once. Raises Violation."""
    for attempt in (0, 1):
        here = directory / f"run{attempt}"
        here.mkdir()
        history, stored = await run(start(here), plan, seed + attempt)
        history.save(here / "history.json")
        try:
            await asyncio.to_thread(validate, history, stored)
        except VoidRun:
            if attempt:
                raise
        else:
            return history
    raise AssertionError("unreachable")


async def or_tell(work: Awaitable[History], seed: int, test: str, directory: Path) -> History:
    """Add the command for a replay to a failure."""
    try:
        return await work
    except Violation as error:
        raise type(error)(f"{error}\n  histories below {directory}\n  {replay_command(seed, test)}") from error
