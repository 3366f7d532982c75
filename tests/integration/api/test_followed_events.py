"""Events that are followed over HTTP: in order, once, in both forms, and only while the right is held."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.clients.followed_events import Event, follow, path, refusal
from harness.seeds import seed_of_run
from harness.servers.shard_process import ShardProcess
from integration.views.test_apiexport import ENTER, RBAC, give

CONFIGMAPS, SECRETS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/secrets"
WATCH = {"apiGroups": [""], "resources": ["configmaps", "secrets", "events"], "verbs": ["watch"]}
BINDINGS = "clusterrolebindings.rbac.authorization.k8s.io"


@pytest.fixture
def reader(shard: ShardProcess, api: Api) -> Iterator[Api]:
    """A user with the right to watch, whose requests are of paths as they are."""
    give(api, "alice", WATCH, ENTER)
    alice = Api(shard, "", "", "alice-token")
    yield alice
    alice.close()


@pytest.fixture
def everything(shard: ShardProcess) -> Iterator[Api]:
    """The administrator, with paths as they are."""
    admin = Api(shard, "", "", shard.token())
    yield admin
    admin.close()


def named(event: Event) -> tuple[str, str]:
    return event["atolloperation"], event["subject"].rpartition("/")[2]


def test_changes_of_several_resources_come_once_in_order_and_without_their_objects(api: Api, reader: Api) -> None:
    with follow(reader, path(api.cluster, "configmaps", "secrets")) as followed:
        assert followed.media_type == "application/x-ndjson"
        assert followed.next()["atolloperation"] == "BOOKMARK"
        api.post(CONFIGMAPS, configmap("one"))
        api.post(SECRETS, {"metadata": {"name": "hidden"}, "stringData": {"key": "value"}})
        api.patch(f"{CONFIGMAPS}/one", {"data": {"a": "b"}})
        api.delete(f"{CONFIGMAPS}/one")
        found = followed.changes(4)
    assert list(map(named, found)) == [("ADDED", "one"), ("ADDED", "hidden"), ("MODIFIED", "one"), ("DELETED", "one")]
    revisions = [int(event["atollrevision"]) for event in found]
    assert revisions == sorted(set(revisions))
    assert not any({"data", "datacontenttype", "atollbefore"} & event.keys() for event in found)


def test_full_events_have_the_object_and_the_one_before_and_sealed_ones_never(api: Api, reader: Api) -> None:
    with follow(reader, path(api.cluster, "configmaps", full="true", previous="true")) as followed:
        api.post(CONFIGMAPS, configmap("one", {"a": "1"}))
        api.patch(f"{CONFIGMAPS}/one", {"data": {"a": "2"}})
        added, modified = followed.changes(2)
    assert (added["data"]["data"], "atollbefore" in added) == ({"a": "1"}, False)
    assert (modified["data"]["data"], json.loads(modified["atollbefore"])["data"]) == ({"a": "2"}, {"a": "1"})
    assert modified["data"]["metadata"]["resourceVersion"] == modified["atollrevision"]
    with follow(reader, path(api.cluster, "secrets", full="true", previous="true")) as followed:
        api.post(SECRETS, {"metadata": {"name": "hidden"}, "stringData": {"key": "value"}})
        (sealed,) = followed.changes(1)
    assert named(sealed) == ("ADDED", "hidden")
    assert not {"data", "atollbefore"} & sealed.keys()
    assert base64.b64encode(b"value").decode() not in json.dumps(sealed)


def test_server_sent_events_are_resumed_by_their_last_id(api: Api, reader: Api) -> None:
    target = path(api.cluster, "configmaps")
    with follow(reader, target, accept="text/event-stream") as followed:
        assert followed.media_type == "text/event-stream"
        api.post(CONFIGMAPS, configmap("one"))
        (first,) = followed.changes(1)
    api.post(CONFIGMAPS, configmap("two"))
    api.post(CONFIGMAPS, configmap("three"))
    with follow(reader, target, accept="text/event-stream", last_event_id=first["id"]) as followed:
        again = followed.until("BOOKMARK")
    assert [named(event) for event in again[:-1]] == [("ADDED", "two"), ("ADDED", "three")]
    with follow(reader, path(api.cluster, "configmaps", since=again[0]["id"])) as followed:
        assert [named(event) for event in followed.until("BOOKMARK")[:-1]] == [("ADDED", "three")]
    with follow(reader, path(api.cluster, "configmaps", since="1h")) as followed:
        found = [named(event) for event in followed.until("BOOKMARK")[:-1] if "subject" in event]
    assert found[-3:] == [("ADDED", "one"), ("ADDED", "two"), ("ADDED", "three")]


def test_what_was_written_at_once_is_resumed_between_any_two_of_its_changes(api: Api, reader: Api) -> None:
    """Its revisions follow each other without a gap."""
    for number in range(4):
        api.post(CONFIGMAPS, {"metadata": {"name": f"part-{number}", "labels": {"batch": "one"}}})
    target = path(api.cluster, "configmaps")
    with follow(reader, target) as followed:
        followed.until("BOOKMARK")
        api.delete(f"{CONFIGMAPS}?labelSelector=batch%3Done")
        deleted = followed.changes(4)
    for count, event in enumerate(deleted, 1):
        with follow(reader, target, last_event_id=event["id"]) as followed:
            rest = followed.until("BOOKMARK")[:-1]
        assert [each["id"] for each in rest] == [each["id"] for each in deleted[count:]]


def test_a_mark_of_another_history_begins_with_a_resync_and_goes_on(api: Api, reader: Api) -> None:
    with follow(reader, path(api.cluster, "configmaps")) as followed:
        uid, lineage, revision = followed.next()["id"].rsplit("-", 2)
    for mark in (f"{uid}-{lineage}x-{revision}", f"other-{lineage}-{revision}", f"{uid}-{lineage}-{10**18}"):
        with follow(reader, path(api.cluster, "configmaps", since=mark)) as followed:
            resync = followed.next()
            assert (resync["atolloperation"], "another" in resync["atollreason"]) == ("RESYNC", True)
            api.post(CONFIGMAPS, {"metadata": {"generateName": "after-"}})
            (event,) = followed.changes(1)
            assert int(event["atollrevision"]) > int(resync["atollrevision"])


def test_who_loses_the_right_is_told_and_hears_nothing_of_later_changes(
    shard: ShardProcess, api: Api, everything: Api
) -> None:
    name = give(api, "alice", WATCH, ENTER)
    alice = Api(shard, "", "", "alice-token")
    with follow(alice, path(api.cluster, "configmaps", "secrets")) as followed:
        followed.until("BOOKMARK")
        api.post(CONFIGMAPS, configmap("one"))
        assert named(followed.changes(1)[0]) == ("ADDED", "one")
        api.delete(f"{RBAC}/clusterrolebindings/{name}")
        api.post(CONFIGMAPS, configmap("two"))
        rest = followed.rest()
    assert [event["atolloperation"] for event in rest if event["atolloperation"] != "BOOKMARK"] == ["CLOSED"]
    assert rest[-1]["atollstate"] == "Revoked" and rest[-1]["atollreason"]
    give(api, "alice", WATCH, ENTER)
    with follow(alice, path(api.cluster, "configmaps"), last_event_id=rest[-1]["id"]) as followed:
        assert named(followed.changes(1)[0]) == ("ADDED", "two")
    alice.close()


def test_who_follows_a_workspace_that_is_deleted_is_told_that_it_is_gone(admin: Api, api: Api, reader: Api) -> None:
    workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
    with follow(reader, path(api.cluster, "configmaps")) as followed:
        followed.until("BOOKMARK")
        admin.delete(f"{workspaces}/{api.cluster.rpartition(':')[2]}")
        assert followed.rest()[-1]["atolloperation"] == "CLOSED"


REFUSED: list[tuple[str, int, str]] = [
    ("resource=configmaps&resource=services", 403, "services"),
    ("resource=services&resource=endpoints", 403, "endpoints"),
    ("resource=events", 422, "not on the stream"),
    ("resource=configmaps&identity=abc", 400, "identity"),
    ("resource=*", 400, "resource"),
    ("", 400, "resource"),
    ("resource=configmaps&since=yesterday", 400, "since"),
    ("resource=configmaps&since=0m", 400, "since"),
    ("resource=configmaps&full=maybe", 400, "full"),
    ("resource=configmaps&previous=true", 400, "full=true"),
    ("resource=configmaps&full=true&full=true", 400, "more than once"),
    ("resource=configmaps&limit=3", 400, "limit"),
    ("&".join(["resource=configmaps"] * 40), 400, ""),
]


@pytest.mark.parametrize(("query", "code", "text"), REFUSED)
def test_what_cannot_be_followed_is_refused_as_a_whole_with_the_reason(
    api: Api, reader: Api, query: str, code: int, text: str
) -> None:
    target = f"/services/events/clusters/{api.cluster}/follow"
    found, status = refusal(reader, f"{target}?{query}")
    assert (found, text in status["message"]) == (code, True), status


def test_nobody_follows_without_a_credential_without_the_right_or_with_one_that_is_too_narrow(
    shard: ShardProcess, api: Api
) -> None:
    target = path(api.cluster, "configmaps")
    anonymous, bob = Api(shard, "", "", ""), Api(shard, "", "", "bob-token")
    assert refusal(anonymous, target)[0] in {401, 403}
    unknown = refusal(bob, path("root:nowhere", "configmaps"))[1]
    assert refusal(bob, target)[1] == unknown
    give(api, "bob", ENTER, {**WATCH, "resourceNames": ["one"]})
    code, status = refusal(bob, target)
    assert (code, "too narrow" in status["message"]) == (403, True)
    bob.send("POST", target, {}, expect=405)


def test_an_identity_follows_no_more_than_its_limit(api: Api, reader: Api) -> None:
    with ExitStack() as stack:
        for _ in range(32):
            stack.enter_context(follow(reader, path(api.cluster, "configmaps"))).until("BOOKMARK")
        code, status = refusal(reader, path(api.cluster, "configmaps"))
        assert (code, "32" in status["message"]) == (403, True)

    def admitted() -> bool:
        with follow(reader, path(api.cluster, "configmaps")) as followed:
            return bool(followed.next())

    eventually(lambda: reader.status(path(api.cluster, "configmaps")) == 200 and admitted(), "a place is free again")


def test_what_is_delivered_over_random_changes_of_rights_is_what_may_be_watched(
    shard: ShardProcess, api: Api, everything: Api
) -> None:
    """Each connection ends with the change that took the right; resumed, nothing is missing and nothing comes twice."""
    dice, alice = random.Random(seed_of_run(1)), Api(shard, "", "", "alice-token")
    delivered: list[Event] = []
    last = ""
    with follow(everything, path(api.cluster, "configmaps", BINDINGS)) as reference:
        reference.until("BOOKMARK")
        for turn in range(6):
            name = give(api, "alice", WATCH, ENTER)
            with follow(
                alice, path(api.cluster, "configmaps"), **({"last_event_id": last} if last else {})
            ) as followed:
                delivered += [event for event in followed.until("BOOKMARK") if "subject" in event]
                for number in range(dice.randrange(4)):
                    api.post(CONFIGMAPS, configmap(f"with-{turn}-{number}"))
                api.delete(f"{RBAC}/clusterrolebindings/{name}")
                for number in range(dice.randrange(1, 4)):
                    api.post(CONFIGMAPS, configmap(f"without-{turn}-{number}"))
                rest = followed.rest()
            assert rest[-1]["atolloperation"] == "CLOSED"
            events = [event for event in rest if "subject" in event]
            assert not [event for event in events if named(event)[1].startswith(f"without-{turn}")]
            delivered, last = delivered + events, rest[-1]["id"]
        give(api, "alice", WATCH, ENTER)
        api.post(CONFIGMAPS, configmap("last"))
        with follow(alice, path(api.cluster, "configmaps"), last_event_id=last) as followed:
            delivered += [event for event in followed.until("BOOKMARK") if "subject" in event]
        expected: list[Event] = []
        while not expected or named(expected[-1]) != ("ADDED", "last"):
            expected += [event for event in reference.changes(1) if "/configmaps/" in event["subject"]]
    assert [event["id"] for event in delivered] == [event["id"] for event in expected]
    alice.close()
