"""Alerts of controllers that share the work: a process that is no member fires, and so does work without one."""

from __future__ import annotations

import pytest

from harness.clients.api import eventually
from harness.clients.prometheus import HOLD_S, Scrape, evaluate
from integration.edge_members.conftest import Member, Members, ended

pytestmark = pytest.mark.long

SOON_S, LATER_S = 900, 900 + HOLD_S
OUT, UNOWNED = "AtollEdgeMemberOut", "AtollEdgeUnowned"


def scrapes(at_s: int, both: tuple[Member, Member]) -> list[Scrape]:
    return [Scrape(at_s, "atoll", f"{number}", each.process.metrics()) for number, each in enumerate(both)]


def fired(found: list[Scrape]) -> set[tuple[str, str]]:
    """Of these two alerts those that began to fire, and for which process."""
    alerts = evaluate(found, max(each.at_s for each in found) + HOLD_S).fired
    return {(each.alert, each.labels.get("instance", "")) for each in alerts if each.alert in {OUT, UNOWNED}}


def shows(member: Member, line: str) -> bool:
    return f"\n{line}\n" in member.process.metrics()


def test_a_process_that_is_left_out_fires_and_so_do_controllers_of_which_none_works(members: Members) -> None:
    works, out = both = members.translator, members.other
    owned = 'atoll_edge_roster_keys{controller="placements"}'
    eventually(lambda: shows(works, f"{owned} 1.0") and shows(out, f"{owned} 0.0"), "one carries objects")
    before = scrapes(0, both)
    wanted = {each for each in evaluate(before, 60, dashboards=True).wanted if each.startswith("atoll_edge_roster_")}
    assert len(wanted) == 5
    for text in (each.text for each in before):
        assert {each for each in wanted if f"\n{each}" not in (text or "")} == set()
    assert fired(before) == set()
    out.nats.cut()
    try:
        assert ended(out) == 1
        out.process.spawn()
        eventually(lambda: shows(out, "atoll_edge_roster_member 0.0"), "it is let in no more")
        assert shows(works, "atoll_edge_roster_member 1.0")
        one = scrapes(SOON_S, both)
        assert fired([*before, *one]) == {(OUT, "1")}
        works.api.cut()
        out.api.cut()
        eventually(lambda: shows(works, f"{owned} 0.0"), "the other one cannot renew")
        assert fired([*before, *one, *scrapes(LATER_S, both)]) == {(OUT, "1"), (OUT, "0"), (UNOWNED, "")}
    finally:
        for link in (works.api, out.api, out.nats):
            link.join()
    eventually(members.are_back, "both work")
    eventually(lambda: out.process.get("/readyz")[0] == 200, "it is ready")
    again = [Scrape(SOON_S, each.job, each.instance, each.text) for each in scrapes(0, both)]
    assert fired([*before, *again]) == set()
