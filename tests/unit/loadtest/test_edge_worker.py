"""Commands to a process of simulated edges, and which process has which edges."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import msgspec
import pytest
from loadtest import edge_processes
from loadtest.edge_fleet import Edge as SimulatedEdge
from loadtest.edge_processes import EdgeProcess
from loadtest.edge_site import Mailbox
from loadtest.edge_syncer import CountingRelay
from loadtest.edge_worker import Command, Cut, CutOff, Edges, Edited, Flap, Full, Join, Passed, Start

from atoll.machinery.client.kubeconfig import Target


class Edge:
    """One whose state is set."""

    def __init__(self, number: int) -> None:
        self.failure = "cut off" if number % 2 else ""
        self.starts = self.stops = 0
        self._number = number

    async def start(self) -> None:
        self.starts += 1

    async def stop(self) -> None:
        self.stops += 1

    def has(self, objects: int) -> bool:
        return objects <= self._number

    def data(self, name: str) -> dict[str, str]:
        return {"edit": "1"} if name == "edited" and self._number < 3 else {}


class Relay:
    def __init__(self) -> None:
        self.passed, self.is_cut = 4096, False

    async def cut(self) -> None:
        self.is_cut = True


@pytest.fixture
def edges() -> Edges:
    return Edges(cast("list[SimulatedEdge]", [Edge(number) for number in range(25)]), cast(CountingRelay, Relay()))


async def answer(edges: Edges, command: Command) -> int:
    """Its answer, as a process gives it."""
    decoded: Command = msgspec.json.decode(msgspec.json.encode(command), type=Command)
    return await decoded.run(edges)


@pytest.mark.parametrize(
    ("command", "expected"), [(Full(20), 5), (Edited("edited", "edit", "1"), 3), (CutOff(), 12), (Passed(), 4096)]
)
async def test_edges_that_are_as_a_question_says_are_counted(edges: Edges, command: Command, expected: int) -> None:
    assert await answer(edges, command) == expected


async def test_parts_start_each_edge_once(edges: Edges) -> None:
    assert sum([await answer(edges, Start(part, 4)) for part in range(4)]) == 25
    assert [edge.starts for edge in edges.all] == [1] * 25  # type: ignore[attr-defined]


async def test_links_are_cut_and_joined(edges: Edges) -> None:
    await answer(edges, Cut())
    assert edges.relay.is_cut
    await answer(edges, Join())
    assert not edges.relay.is_cut


async def test_one_of_ten_flaps_until_none_does(edges: Edges) -> None:
    assert await answer(edges, Flap(10)) == 2
    await asyncio.sleep(0)
    assert await answer(edges, Flap(0)) == 0
    assert [edge.stops for edge in edges.all] == [1] * 2 + [0] * 23  # type: ignore[attr-defined]


def test_each_mailbox_is_in_one_process_and_proxies_take_turns() -> None:
    mailboxes = [Mailbox(f"edge-{number}", f"uid-{number}", f"c{number}") for number in range(10_000)]
    clusters = [Path(name) for name in "abc"]
    plans = edge_processes._plans(Path("center"), clusters, [1, 2], mailboxes)
    assert [mailbox for plan in plans for mailbox in plan.mailboxes] == mailboxes
    most = {name: sum(len(plan.mailboxes) for plan in plans if plan.clusters == name) for name in "abc"}
    assert max(len(plan.mailboxes) for plan in plans) <= edge_processes.EDGES_A_PROCESS
    assert max(most.values()) <= edge_processes.EDGES_A_SERVER
    assert sum(len(plan.mailboxes) for plan in plans if plan.port == 1) == 5000


class Process:
    """Of ten edges in two parts, of which one never has anything."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    async def ask(self, command: Command) -> int:
        self.commands.append(command)
        starts = sum(isinstance(each, Start) for each in self.commands)
        return 5 if isinstance(command, Start) else 5 * starts - 1


async def test_an_edge_that_gets_nothing_is_left_behind_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_processes, "PART_S", -1.0)
    process = Process()
    fleet = edge_processes.Fleet(10, cast(Target, None), [cast(EdgeProcess, process)])
    await fleet.start(0, Full(1))
    assert (fleet.started, fleet.full) == (5, 4)
    monkeypatch.setattr(edge_processes, "PART_S", 60.0)
    await fleet.start(1, Full(1))
    assert (fleet.started, fleet.full) == (10, 9)
    assert process.commands == [Start(0, 2), Full(1), Start(1, 2), Full(1)]
