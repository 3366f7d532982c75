"""What do many edges cost the center, and how fast is it with them?

Three shards and a proxy, with the edge service; simulated edges beside it on the same machine, which share its cores:
seconds are an upper bound, CPU time and memory are the center's own. `--at edges=N --at objects=N --at locations=N`
choose other sizes. Beyond 6,000 edges there are more proxies. Rows are printed as they become known.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack

from atoll.edge.kinds import LOCATIONS, PLACEMENTS, SLICES
from atoll.machinery.client.client import Client
from atoll.machinery.meta.conditions import is_true
from atoll.machinery.meta.objects import Object, conditions_of, status_of
from harness.servers.edge_service import an_object, location
from harness.waits import until
from loadtest import processes
from loadtest.bench import CONFIG_MAPS, Bench, config_map, percentile
from loadtest.edge_load import NAME, Sizes, has_data, with_edges
from loadtest.edge_processes import fleet
from loadtest.edge_site import INVENTORY, WORKLOAD, EdgeServer, Mailbox, arrivals, config_maps_of, make_mailboxes, place
from loadtest.edge_syncer import NAMESPACE
from loadtest.parallel import PARALLEL, each
from loadtest.report import Row
from loadtest.server import Cost

#: Seconds in which controllers that were restarted have compared all copies, some 10 us each.
COMPARED_S = 15.0


async def run(bench: Bench) -> list[Row]:
    sizes = Sizes(
        max(bench.size(40, 200, "edges"), 2), bench.size(40, 100, "objects"), bench.size(1000, 10_000, "locations")
    )
    server = EdgeServer(bench.place(), "--shards", "3", cores=set(processes.USABLE))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        await server.controllers()
        workload = await stack.enter_async_context(server.client(WORKLOAD))
        inventory = await stack.enter_async_context(server.client(INVENTORY))
        began = time.perf_counter()
        names = [f"edge-{number}" for number in range(sizes.edges)]
        mailboxes = await make_mailboxes(server, names, limit_s=sizes.patience_s, fleet=NAME)
        bench.add(Row(f"{sizes.edges} mailboxes made", sizes.edges / (time.perf_counter() - began), "/s"))
        bench.add(await _relabels(bench, inventory, workload, sizes))
        bench.add(*await _filled(bench, server, workload, sizes))
        bench.add(*await _restarted(server, workload, mailboxes, sizes))
        edges = await stack.enter_async_context(fleet(bench, server, mailboxes))
        await with_edges(bench, server, workload, edges, sizes)
        return bench.rows


async def _relabels(bench: Bench, inventory: Client, workload: Client, sizes: Sizes) -> Row:
    """Give one Location among many the label that a placement selects, and take it away.

    The numbers of instances of all of them are written before, as that is what the center does meanwhile.
    """
    await each(range(sizes.locations), lambda number: inventory.create(LOCATIONS, location(f"l{number}", "edge-0")))
    last = [f"l{number}" for number in range(sizes.locations)][-PARALLEL:]

    async def are_counted() -> bool:
        found = [await inventory.get(LOCATIONS, name) for name in last]
        return all("instances" in status_of(obj) for obj in found)

    await until(are_counted, "the Locations have their numbers of instances", sizes.patience_s)
    took_ms: list[float] = []
    async with arrivals(workload, SLICES) as seen:
        made = seen.expect("relabel", lambda obj: True)
        selectors = [{"matchLabels": {"moved": "yes"}}]
        spec: Object = {"locationSelectors": selectors, "downsync": [config_maps_of("relabel")]}
        await workload.create(PLACEMENTS, an_object("EdgePlacement", "relabel", spec))
        async with asyncio.timeout(sizes.patience_s):
            await made
        for number in range(2 * bench.size(10, 30)):
            label = None if number % 2 else "yes"
            moved = seen.expect("relabel", _has_destinations if label else _has_none)
            began = time.perf_counter()
            await inventory.patch(LOCATIONS, "l0", {"metadata": {"labels": {"moved": label}}})
            async with asyncio.timeout(sizes.patience_s):
                took_ms.append((await moved - began) * 1000)
    what = f"relabel of one Location among {sizes.locations:,} to its slice, p50"
    return Row(what, percentile(took_ms, 0.5), "ms", 50, note=f"p90 {percentile(took_ms, 0.9):.0f} ms")


def _has_destinations(found: Object) -> bool:
    return bool(found.get("destinations"))


def _has_none(found: Object) -> bool:
    return not _has_destinations(found)


async def _filled(bench: Bench, server: EdgeServer, workload: Client, sizes: Sizes) -> list[Row]:
    """Fill all mailboxes, then add one object to all."""
    plain = await _create_rate(bench, workload)
    controllers = await server.controllers()
    before = processes.memory([controllers])
    await each(range(sizes.objects), lambda number: workload.create(CONFIG_MAPS, _object(number)))
    async with arrivals(workload, PLACEMENTS) as seen:
        full = seen.expect(NAME, lambda obj: _is_full(obj, sizes.edges, sizes.objects))
        began = time.perf_counter()
        with Cost(server) as filling:
            await place(workload, NAME, config_maps_of(NAME))
            async with asyncio.timeout(sizes.patience_s):
                filled_s = await full - began
        more = seen.expect(NAME, lambda obj: _is_full(obj, sizes.edges, sizes.objects + 1))
        began = time.perf_counter()
        with Cost(server) as spreading:
            await workload.create(CONFIG_MAPS, _object(sizes.objects))
            async with asyncio.timeout(sizes.patience_s):
                spread_s = await more - began
    after = processes.memory([controllers])
    note = f"create by the same client {plain:,.0f} /s; CPU us a copy: {filling.note(sizes.copies)}"
    a_copy = (
        f"{before.resident / 1e6:.0f} MB before; {(after.private - before.private) / sizes.copies:.0f} bytes a copy"
    )
    spent = f"CPU us a mailbox: {spreading.note(sizes.edges)}"
    return [
        Row(f"first fill of {sizes.copies:,} copies", sizes.copies / filled_s, "/s", plain / 2, True, note),
        Row(f"one object to {sizes.edges:,} mailboxes", spread_s, "s", 3, note=spent),
        Row(f"controllers with {sizes.copies:,} copies", after.resident / 1e6, "MB", 250, note=a_copy),
    ]


async def _create_rate(bench: Bench, workload: Client) -> float:
    """Creates a second, through the proxy and by the client that the controllers have."""
    count = bench.size(500, 3000)
    began = time.perf_counter()
    objects = [config_map(f"plain-{number}") for number in range(count)]
    await each(objects, lambda obj: workload.create(CONFIG_MAPS, obj, NAMESPACE))
    return count / (time.perf_counter() - began)


def _object(number: int) -> Object:
    obj = config_map(f"{NAME}-{number}")
    obj["metadata"] |= {"labels": {"fleet": NAME}, "namespace": NAMESPACE}
    return obj


def _is_full(placement: Object, mailboxes: int, objects: int) -> bool:
    status = status_of(placement)
    is_whole = status.get("objectCount") == objects and (status.get("destinations") or {}).get("total") == mailboxes
    return is_whole and is_true(conditions_of(placement), "Projected")


async def _restarted(server: EdgeServer, workload: Client, mailboxes: list[Mailbox], sizes: Sizes) -> list[Row]:
    """Kill the controllers, edit an object meanwhile, wait for the edit in a mailbox; see what else was written."""
    sample = mailboxes[:: max(len(mailboxes) // 20, 1)]
    before = [await _copies(server, each) for each in sample]
    killed = await server.controllers()
    began = time.perf_counter()
    os.kill(killed, signal.SIGKILL)
    await workload.patch(CONFIG_MAPS, f"{NAME}-0", {"data": {"edit": "1"}}, NAMESPACE)
    name = f"{NAME}-0"

    async def has_edit() -> bool:
        async with server.client(sample[-1].cluster) as inside:
            return has_data({"edit": "1"}, await inside.get(CONFIG_MAPS, name, NAMESPACE))

    await until(has_edit, "the edit is in a mailbox", sizes.patience_s)
    took_s = time.perf_counter() - began
    await asyncio.sleep(COMPARED_S)
    after = [await _copies(server, each) for each in sample]
    others = sum(old[key] != new.get(key) for old, new in zip(before, after, strict=True) for key in old if key != name)
    return [
        Row(f"restart of controllers with {sizes.copies:,} copies to current", took_s, "s", 10),
        Row(f"  written again in {len(sample)} mailboxes", others, ""),
    ]


async def _copies(server: EdgeServer, mailbox: Mailbox) -> dict[str, str]:
    """The revision of each copy of a mailbox."""
    async with server.client(mailbox.cluster) as inside:
        found = (await inside.list(CONFIG_MAPS, NAMESPACE))["items"]
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}
