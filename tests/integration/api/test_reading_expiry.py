"""Expired revisions: a shard whose lists live for a second or two and whose log is short.

An expired continue token comes with a replacement token, exact revisions and watches below the log are 410, and a watch
resumes over a restart without loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.api import Api, configmap, eventually, workspace_under
from harness.servers.shard_process import ShardProcess
from harness.servers.virtual_workspaces import mailbox_view

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
LIST_WINDOW_S, LOG_RETENTION_S = 1, 2
COUNT, LIMIT = 40, 17


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    directory: Path = tmp_path_factory.mktemp("brief")
    flags = ("--list-window", str(LIST_WINDOW_S), "--log-retention", str(LOG_RETENTION_S))
    with ShardProcess(directory, *flags) as running:
        yield running


@pytest.fixture
def here(brief: ShardProcess) -> Iterator[Api]:
    root = Api(brief, "root")
    api = root.at(workspace_under(root, type_="universal"))
    root.close()
    yield api
    api.close()


def fill(api: Api, count: int = COUNT) -> None:
    for number in range(count):
        api.post(CONFIGMAPS, configmap(f"m-{number:03}", labels={"m": ""}))


def until_expired(api: Api, path: str) -> dict[str, Any]:
    """Repeat the request until the answer is 410; return the Status."""

    def gone() -> Any:
        answer = api.get(path, expect=0)
        assert answer.code in {200, 410}, answer.body
        return answer.json if answer.code == 410 else None

    status: dict[str, Any] = eventually(gone, "410")
    assert status["reason"] == "Expired"
    return status


@pytest.mark.long
def test_a_token_expires_into_one_that_goes_on_without_its_moment(here: Api) -> None:
    fill(here)
    first = here.get(f"{CONFIGMAPS}?limit={LIMIT}").json
    total = LIMIT + first["metadata"]["remainingItemCount"]
    token = first["metadata"]["continue"]
    here.post(CONFIGMAPS, configmap("m-999"))
    status = until_expired(here, f"{CONFIGMAPS}?limit={LIMIT}&continue={token}")
    assert "The provided continue parameter is too old" in status["message"]
    fresh = status["metadata"]["continue"]
    assert fresh != token
    second = here.get(f"{CONFIGMAPS}?limit={LIMIT}&continue={fresh}").json
    assert len(second["items"]) == LIMIT
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert second["metadata"]["remainingItemCount"] == total + 1 - 2 * LIMIT
    third = here.get(f"{CONFIGMAPS}?limit={LIMIT}&continue={second['metadata']['continue']}").json
    assert third["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert "continue" not in third["metadata"]
    names = [item["metadata"]["name"] for page in (first, second, third) for item in page["items"]]
    assert len(names) == total + 1
    assert names == sorted(set(names))
    assert names[-1] == "m-999"


def test_a_token_of_a_selection_expires_into_one_of_the_same_selection(here: Api) -> None:
    fill(here, 5)
    path = f"{CONFIGMAPS}?labelSelector=m&limit=2"
    token = here.get(path).json["metadata"]["continue"]
    fresh = until_expired(here, f"{path}&continue={token}")["metadata"]["continue"]
    assert [item["metadata"]["name"] for item in here.get(f"{path}&continue={fresh}").json["items"]] == [
        "m-002",
        "m-003",
    ]
    assert here.get(f"{CONFIGMAPS}?limit=2&continue={fresh}", expect=400).json["reason"] == "BadRequest"


def test_an_exact_revision_expires_and_the_current_state_does_not(here: Api) -> None:
    made = here.post(CONFIGMAPS, configmap("a")).json["metadata"]["resourceVersion"]
    now = here.post(CONFIGMAPS, configmap("b")).json["metadata"]["resourceVersion"]
    status = until_expired(here, f"{CONFIGMAPS}?resourceVersion={made}&resourceVersionMatch=Exact")
    assert status["message"] == "The resourceVersion for the provided list is too old."
    assert "continue" not in status["metadata"]
    assert until_expired(here, f"{CONFIGMAPS}?resourceVersion={made}&limit=1")["code"] == 410
    for query in (f"resourceVersion={made}", f"resourceVersion={made}&resourceVersionMatch=NotOlderThan&limit=5"):
        found = here.get(f"{CONFIGMAPS}?{query}").json
        assert int(found["metadata"]["resourceVersion"]) >= int(now)
    assert here.get(f"{CONFIGMAPS}/a?resourceVersion={made}").code == 200


def test_a_watch_below_the_log_is_told_so_once_and_one_at_its_end_goes_on(here: Api) -> None:
    made = here.post(CONFIGMAPS, configmap("a")).json["metadata"]["resourceVersion"]
    for number in range(3):
        last = here.patch(f"{CONFIGMAPS}/a", {"data": {"n": str(number)}}).json["metadata"]["resourceVersion"]

    def compacted() -> Any:
        with here.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={made}&timeoutSeconds=1") as events:
            found = events.rest()
        return found if found and found[0].type == "ERROR" else None

    (event,) = eventually(compacted, "the log is compacted")
    assert (event.object["code"], event.object["reason"]) == (410, "Expired")
    assert event.object["message"].startswith(f"too old resource version: {made} (")
    # The scope had no change since that revision, so no event is lost, however short the log is.
    with here.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={last}") as events:
        here.patch(f"{CONFIGMAPS}/a", {"data": {"n": "on"}})
        assert events.next().object["data"] == {"n": "on"}
    with here.watch(
        f"{CONFIGMAPS}?watch=1&resourceVersion={made}&timeoutSeconds=1&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
    ) as events:
        assert [e.type for e in events.rest()] == ["ADDED", "ADDED", "BOOKMARK"]


@pytest.mark.long
def test_a_watch_goes_on_over_restarts_and_misses_nothing(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        root = Api(shard, "root")
        path = workspace_under(root, type_="universal")
        api = Api(shard, path)
        since = api.get(CONFIGMAPS).json["metadata"]["resourceVersion"]
        seen: list[tuple[str, str]] = []
        for round_ in range(3):
            api.post(CONFIGMAPS, configmap(f"a-{round_}"))
            with api.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={since}") as events:
                event = events.next()
                seen.append((event.type, event.name))
                since = str(event.revision)
            api.post(CONFIGMAPS, configmap(f"b-{round_}"))
            api.delete(f"{CONFIGMAPS}/a-{round_}")
            api.close()
            if round_ % 2:
                shard.kill()
                shard.start()
            else:
                shard.restart()
            api = Api(shard, path)
            with api.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={since}") as events:
                found = events.take(2)
                seen += [(event.type, event.name) for event in found]
                since = str(found[-1].revision)
        api.close()
        root.close()
    assert seen == [
        pair for n in range(3) for pair in (("ADDED", f"a-{n}"), ("ADDED", f"b-{n}"), ("DELETED", f"a-{n}"))
    ]


@pytest.mark.long
def test_so_is_a_watch_of_all_that_goes_down_to_an_edge_cluster(here: Api) -> None:
    items, view = "/apis/edge.kubestellar.io/v2alpha1/downsyncitems", mailbox_view(here)
    configs = items.replace("downsyncitems", "edgesyncconfigs")
    body: dict[str, Any] = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "EdgeSyncConfig", "spec": {}}
    first, last = (here.post(configs, {**body, "metadata": {"name": name}}).json["metadata"] for name in ("a", "b"))

    def compacted() -> Any:
        with view.watch(f"{items}?watch=1&resourceVersion={first['resourceVersion']}&timeoutSeconds=1") as events:
            found = events.rest()
        return found if found and found[0].type == "ERROR" else None

    (event,) = eventually(compacted, "the log is compacted")
    assert (event.object["code"], event.object["reason"]) == (410, "Expired")
    names = [each["metadata"]["name"] for each in view.get(items).json["items"]]
    assert names == ["edgesyncconfigs.edge.kubestellar.io::a", "edgesyncconfigs.edge.kubestellar.io::b"]
    with view.watch(f"{items}?watch=1&resourceVersion={last['resourceVersion']}") as events:
        here.delete(f"{configs}/b")
        assert (gone := events.next()).type == "DELETED", gone
