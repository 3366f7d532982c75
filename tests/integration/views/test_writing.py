"""Third parties' views that are written, and that join workspaces: the README's second program in its own process."""

from __future__ import annotations

import ast
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.clients.api import APPLY, Api, Object, eventually
from harness.clients.exports import BINDINGS, PATIENCE_S, cluster_of
from harness.servers.third_party_view import SQUADS as EXAMPLE
from harness.servers.third_party_view import program
from harness.servers.virtual_workspaces import SQUADS_GROUP as GROUP
from harness.servers.virtual_workspaces import OfSquads
from integration.views.test_third_party import allow

TEAMS, SQUADS, CLUBS = (f"/apis/{GROUP}/v1/namespaces/default/{plural}" for plural in ("teams", "squads", "clubs"))
WRITES = ("create", "update", "patch", "delete")
CODES = {"create": 201, "update": 200, "patch": 200, "delete": 200}
ENTER = {"nonResourceURLs": ["/"], "verbs": ["access"]}
SHARED = "views.atoll.dev/shared-with"


def squad(name: str, motto: str = "win", **metadata: Any) -> Object:
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Squad", "metadata": {"name": name, **metadata}}
    return {**body, "spec": {"motto": motto}}


def rule(plural: str, *verbs: str) -> Object:
    return {"apiGroups": [GROUP], "resources": [plural, f"{plural}/status"], "verbs": list(verbs)}


def attempt(third: OfSquads, path: str, verb: str, name: str, **sent: str) -> int:
    """The code of a write of a row at the view itself."""
    target = f"{urlsplit(third.view.url_of('squads')).path}{path}"
    if verb == "create":
        return third.view.send("POST", target, squad(name), **sent)[0]
    if verb == "update":
        _, current = third.view.send("GET", f"{target}/{name}", **{"X-Remote-User": "kcp-admin"})
        revision = current["metadata"].get("resourceVersion", "1")
        return third.view.send("PUT", f"{target}/{name}", squad(name, "draw", resourceVersion=revision), **sent)[0]
    if verb == "patch":
        return third.view.send("PATCH", f"{target}/{name}", {"spec": {"motto": "draw"}}, **sent)[0]
    return third.view.send("DELETE", f"{target}/{name}", **sent)[0]


def ready(consumer: Api, verb: str, name: str) -> None:
    """Make the row that a write needs."""
    if verb != "create":
        consumer.post(SQUADS, squad(name))


def test_the_program_imports_nothing_but_the_public_package() -> None:
    nodes = [node for node in ast.walk(ast.parse(program(EXAMPLE))) if isinstance(node, ast.ImportFrom)]
    assert {node.module for node in nodes} == {"atoll.virtualworkspace_sdk", "collections.abc"}


def test_what_is_written_is_in_the_source_object_and_read_back(squads: OfSquads) -> None:
    consumer = squads.consumer()
    made = consumer.post(SQUADS, squad("north", labels={"side": "up"})).json
    assert (made["kind"], made["spec"], made["metadata"]["labels"]) == ("Squad", {"motto": "win"}, {"side": "up"})
    team = consumer.get(f"{TEAMS}/north").json
    assert (team["spec"]["colour"], team["metadata"]["labels"]) == ("win", {"side": "up"})
    assert consumer.get(f"{SQUADS}/north").json == made
    changed = consumer.patch(f"{SQUADS}/north", {"spec": {"motto": "draw"}}).json
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    assert consumer.get(f"{TEAMS}/north").json["spec"]["colour"] == "draw"
    consumer.delete(f"{SQUADS}/north")
    consumer.get(f"{SQUADS}/north", expect=404)
    consumer.get(f"{TEAMS}/north", expect=404)


def test_the_status_is_written_apart(squads: OfSquads) -> None:
    consumer = squads.consumer()
    made = consumer.post(SQUADS, {**squad("north"), "status": {"captain": "bo"}}).json
    assert not made.get("status", {}).get("captain")
    found = consumer.patch(f"{SQUADS}/north/status", {"status": {"captain": "ann"}, "spec": {"motto": "no"}}).json
    assert (found["status"], found["spec"]) == ({"captain": "ann"}, {"motto": "win"})
    assert consumer.get(f"{TEAMS}/north").json["status"]["selector"] == "ann"
    consumer.patch(f"{SQUADS}/north", {"status": {"captain": "bo"}})
    assert consumer.get(f"{SQUADS}/north").json["status"] == {"captain": "ann"}


def test_the_rules_of_every_write_hold(squads: OfSquads) -> None:
    consumer = squads.consumer()
    made = consumer.post(SQUADS, squad("north")).json
    assert consumer.post(SQUADS, squad("north"), expect=409).json["reason"] == "AlreadyExists"
    assert consumer.post(SQUADS, {**squad("x"), "spec": {"motto": 1}}, expect=422).json["reason"] == "Invalid"
    assert "nobody wants to lose" in consumer.post(SQUADS, squad("x", "lose"), expect=403).message
    consumer.put(f"{SQUADS}/south", squad("south"), expect=404)
    consumer.patch(f"{SQUADS}/south", {"spec": {"motto": "x"}}, expect=404)
    consumer.delete(f"{SQUADS}/south", expect=404)
    consumer.patch(f"{SQUADS}/north", {"spec": {"motto": "draw"}})
    stale = {**made, "spec": {"motto": "old"}}
    assert consumer.put(f"{SQUADS}/north", stale, expect=409).json["reason"] == "Conflict"
    applied = consumer.patch(f"{SQUADS}/west?fieldManager=me", squad("west"), APPLY, expect=201).json
    assert applied["spec"] == {"motto": "win"}
    generated = consumer.post(SQUADS, {**squad(""), "metadata": {"generateName": "any-"}}).json
    assert consumer.get(f"{TEAMS}/{generated['metadata']['name']}").json["spec"]["colour"] == "win"


def test_a_dry_run_changes_nothing(squads: OfSquads) -> None:
    consumer = squads.consumer()
    consumer.post(SQUADS, squad("north"))
    consumer.post(f"{SQUADS}?dryRun=All", squad("south"))
    consumer.patch(f"{SQUADS}/north?dryRun=All", {"spec": {"motto": "draw"}})
    consumer.delete(f"{SQUADS}/north?dryRun=All")
    assert [each["metadata"]["name"] for each in consumer.get(TEAMS).json["items"]] == ["north"]
    assert consumer.get(f"{SQUADS}/north").json["spec"] == {"motto": "win"}


@pytest.mark.parametrize("verb", WRITES)
def test_who_may_not_write_the_row_does_not(squads: OfSquads, verb: str) -> None:
    consumer = squads.consumer()
    path = f"/clusters/{cluster_of(consumer)}{SQUADS}"
    ready(consumer, verb, "north")
    allow(consumer, "bob", rule("teams", "*"), rule("squads", *(each for each in WRITES if each != verb)), ENTER)
    readable = {"apiGroups": [GROUP], "resources": ["squads"], "verbs": ["list"]}
    allow(consumer, "bob", readable)
    bob = Api(consumer.shard, consumer.cluster, token="bob-token")
    eventually(lambda: bob.get(SQUADS, expect=0).code == 200, "bob lists", PATIENCE_S)
    # The shard is not asked by a proxy's client: the view refuses by itself.
    assert attempt(squads, path, verb, "north", **{"X-Remote-User": "bob"}) == 403
    allow(consumer, "bob", rule("squads", verb), readable, ENTER, ENTER)
    sent = {"X-Remote-User": "bob"}
    eventually(lambda: attempt(squads, path, verb, "north", **sent) == CODES[verb], "bob writes", PATIENCE_S)


@pytest.mark.parametrize("verb", WRITES)
def test_who_may_not_change_the_source_objects_does_not_change_them_by_a_row(squads: OfSquads, verb: str) -> None:
    consumer = squads.consumer()
    path = f"/clusters/{cluster_of(consumer)}{SQUADS}"
    ready(consumer, verb, "north")
    needed = "update" if verb == "patch" else verb
    others = [each for each in ("create", "update", "delete") if each != needed]
    allow(consumer, "bob", rule("squads", "*"), rule("teams", *others), ENTER)
    bob = Api(consumer.shard, consumer.cluster, token="bob-token")
    eventually(lambda: bob.get(SQUADS, expect=0).code == 200, "bob lists", PATIENCE_S)
    before = consumer.get(TEAMS).json["items"]
    assert attempt(squads, path, verb, "north", **{"X-Remote-User": "bob"}) == 403
    assert consumer.get(TEAMS).json["items"] == before
    allow(consumer, "bob", rule("teams", needed), ENTER)
    sent = {"X-Remote-User": "bob"}
    eventually(lambda: attempt(squads, path, verb, "north", **sent) == CODES[verb], "bob writes", PATIENCE_S)


@pytest.mark.parametrize("verb", WRITES)
def test_nobody_but_a_proxy_says_who_writes(squads: OfSquads, verb: str) -> None:
    consumer = squads.consumer()
    path = f"/clusters/{cluster_of(consumer)}{SQUADS}"
    ready(consumer, verb, "north")
    sent = {"X-Remote-User": "kcp-admin"}
    assert attempt(squads, path, verb, "north", certificate="", **sent) == 403
    with pytest.raises(OSError):
        attempt(squads, path, verb, "north", certificate="stranger", **sent)
    assert attempt(squads, path, verb, "north", **sent) == CODES[verb]


@pytest.mark.parametrize("verb", WRITES)
def test_a_write_stays_in_its_workspace(squads: OfSquads, verb: str) -> None:
    mine, other = squads.consumer(), squads.consumer()
    ready(mine, verb, "north")
    other.post(SQUADS, squad("theirs"))
    allow(mine, "bob", rule("squads", "*"), rule("teams", "*"), ENTER)
    bob = Api(mine.shard, mine.cluster, token="bob-token")
    eventually(lambda: bob.get(SQUADS, expect=0).code == 200, "bob lists", PATIENCE_S)
    before = other.get(TEAMS).json["items"]
    sent = {"X-Remote-User": "bob"}
    for cluster in (cluster_of(other), "*", "unheardof"):
        assert attempt(squads, f"/clusters/{cluster}{SQUADS}", verb, "theirs", **sent) in {403, 404}
    assert other.get(TEAMS).json["items"] == before
    assert attempt(squads, f"/clusters/{cluster_of(mine)}{SQUADS}", verb, "north", **sent) == CODES[verb]


def test_rows_join_the_workspaces_that_share_with_theirs(squads: OfSquads) -> None:
    mine, other = squads.consumer(), squads.consumer()
    mine.post(SQUADS, squad("north", "win"))
    other.post(SQUADS, squad("north", "draw"))
    other.post(SQUADS, squad("south", "wait"))

    def mottos(api: Api, name: str) -> list[str] | None:
        found = api.get(f"{CLUBS}/{name}", expect=0)
        return list(found.json["spec"]["mottos"]) if found.code == 200 else None

    eventually(lambda: mottos(mine, "north") == ["win"], "a club of one", PATIENCE_S)
    other.patch(f"{BINDINGS}/teams", {"metadata": {"annotations": {SHARED: cluster_of(mine)}}})
    eventually(lambda: mottos(mine, "north") == ["draw", "win"], "a club of both", PATIENCE_S)
    eventually(lambda: mottos(mine, "south") == ["wait"], "a club of the other alone", PATIENCE_S)
    assert mottos(other, "north") == ["draw"]
    other.patch(f"{SQUADS}/north", {"spec": {"motto": "rest"}})
    eventually(lambda: mottos(mine, "north") == ["rest", "win"], "the club follows", PATIENCE_S)
    other.patch(f"{BINDINGS}/teams", {"metadata": {"annotations": {SHARED: None}}})
    eventually(lambda: mottos(mine, "north") == ["win"], "shared no more", PATIENCE_S)
    eventually(lambda: mottos(mine, "south") is None, "nothing is left", PATIENCE_S)
    mine.post(CLUBS, {}, expect=0)
    assert mine.send("POST", CLUBS, {**squad("x"), "kind": "Club"}).code in {403, 405}
