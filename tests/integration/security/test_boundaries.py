"""Boundaries that open and close: required groups, inactive workspaces and what is open in them, one admission for all.

Each trial fails when its guard is taken out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.clients.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, Answer, Api, Events, configmap
from harness.clients.tenants import CLUSTER, CONFIGMAPS, RBAC, Scene, token_file, whoami
from harness.servers.mutant_shard import MutantShard

INACTIVE = {"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}}
ACTIVE = {"metadata": {"annotations": {"core.kcp.io/inactive": None}}}
#: The longest time until a stream ends.
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutantShard]:
    directory = tmp_path_factory.mktemp("town")
    with MutantShard(directory, *token_file(directory)) as running:
        yield running


@pytest.fixture
def scene(shard: MutantShard) -> Scene:
    return Scene(Api(shard, "root"))


def test_without_the_groups_a_workspace_requires_not_even_its_administrator_gets_in(scene: Scene) -> None:
    scene.helper.get(CONFIGMAPS)
    key = "authorization.kcp.io/required-groups"
    scene.master.patch(CLUSTER, {"metadata": {"annotations": {key: "staff,cleared;directors"}}})
    for headers in ({}, {"Impersonate-User": "alice"}, {"Impersonate-User": "helper", "Impersonate-Group": "staff"}):
        assert scene.helper.send("GET", CONFIGMAPS, headers=headers).code == 403, headers
    for wanted, code in (("staff", 403), ("cleared", 403), ("directors", 200)):
        headers = {"Impersonate-User": "helper", "Impersonate-Group": wanted}
        assert scene.master.send("GET", CONFIGMAPS, headers=headers).code == code, wanted
    assert scene.helper.send("PATCH", CLUSTER, {"metadata": {"annotations": {key: None}}}, kind=MERGE).code == 403


def test_a_lifecycle_group_is_nobodys_to_bring_along(scene: Scene) -> None:
    """Not even with the operator's own token file."""
    scene.type("made", initializer=True)
    cluster = scene.child(scene.here, "w", "made")
    assert scene.by("bold", cluster).send("GET", CONFIGMAPS).code == 403
    assert whoami(scene.by("bold", "root"))["status"]["userInfo"]["groups"] == ["system:authenticated"]


def ended(events: Events) -> list[Any]:
    """The remaining events of a stream; fails with TimeoutError if it does not end."""
    return events.rest()


def watching(api: Api, path: str) -> Any:
    """A watch with a short timeout."""
    plain = api.open

    def impatient() -> Any:
        connection = plain()
        connection.timeout = PATIENCE_S
        return connection

    api.open = impatient  # type: ignore[method-assign]
    return api.watch(path)


def test_an_inactive_workspace_ends_every_watch_through_which_it_was_seen(scene: Scene) -> None:
    bystander = Scene(scene.root)
    selector = f"watch=1&resourceVersion={scene.here.get(CONFIGMAPS).json['metadata']['resourceVersion']}"
    everywhere = scene.by("master", "*")
    with (
        watching(scene.helper, f"{CONFIGMAPS}?{selector}") as inside,
        watching(everywhere, f"/api/v1/configmaps?{selector}") as above,
        watching(bystander.helper, f"{CONFIGMAPS}?{selector}") as elsewhere,
    ):
        scene.helper.post(CONFIGMAPS, configmap("last"))
        assert inside.next().name == above.next().name == "last"
        scene.master.patch(CLUSTER, INACTIVE)
        try:
            assert (ended(inside), ended(above)) == ([], [])
        except TimeoutError:
            pytest.fail("a watch goes on")
        assert scene.helper.send("GET", f"{CONFIGMAPS}?watch=1").code == 403
        # The watch of the other workspace goes on.
        bystander.helper.post(CONFIGMAPS, configmap("mine"))
        assert elsewhere.next().name == "mine"
    scene.master.patch(CLUSTER, ACTIVE)
    assert scene.helper.get(f"{CONFIGMAPS}/last").json["metadata"]["name"] == "last"


def test_an_inactive_workspace_is_closed_to_views_and_masters_too(scene: Scene) -> None:
    scene.master.patch(CLUSTER, INACTIVE)
    for api in (scene.master, scene.helper, scene.here):
        for path in (CONFIGMAPS, "/api/v1/namespaces", "/apis", "/version", f"{RBAC}/clusterroles"):
            assert "is marked inactive" in api.get(path, expect=403).message
        assert api.send("POST", CONFIGMAPS, configmap("x")).code == 403
        api.get(CLUSTER)


# --- one admission for every path ---

#: Rejects objects with the mark, and counts requests in a warning.
POISON = """
import itertools
from atoll.machinery.apiserver.admission.chain import Admission
from atoll.machinery.meta.status import Forbidden
whole, count = Admission.validate, itertools.count()
def poison(review):
    for obj in (review.obj, review.old):
        if obj and "poison" in (obj["metadata"].get("labels") or {}):
            raise Forbidden("poison")
def validate(self, review):
    whole(self, review)
    review.call.warnings.append(f"admitted {next(count)}")
    poison(review)
Admission.validate = validate
"""
MARK = {"labels": {"poison": "yes"}}


def tries(api: Api, query: str) -> Iterator[tuple[str, Answer]]:
    """Every way to write a marked object."""
    one, marked = f"{CONFIGMAPS}/plain{query}", configmap("plain", **MARK)
    more = "&" if query else "?"
    applied = json.dumps({**marked, "apiVersion": "v1", "kind": "ConfigMap"}).encode()
    label = [{"op": "add", "path": "/metadata/labels", "value": MARK["labels"]}]
    yield "create", api.send("POST", CONFIGMAPS + query, configmap("marked", **MARK))
    yield "update", api.send("PUT", one, marked)
    for kind, patch in ((MERGE, {"metadata": MARK}), (STRATEGIC, {"metadata": MARK}), (JSON_PATCH, label)):
        yield kind, api.send("PATCH", one, patch, kind=kind)
    yield "apply", api.send("PATCH", f"{one}{more}fieldManager=me&force=true", applied, kind=APPLY)
    body = applied.replace(b'"plain"', b'"applied"')
    path = f"{CONFIGMAPS}/applied{query}{more}fieldManager=me"
    yield "apply that creates", api.send("PATCH", path, body, kind=APPLY)


def test_what_admission_refuses_is_written_through_no_door(shard: MutantShard, scene: Scene) -> None:
    with shard.without(POISON):
        poisoned(scene)


def poisoned(scene: Scene) -> None:
    initializer = scene.type("made", initializer=True)
    scene.lets_initialize("worker")
    cluster = scene.child(scene.helper, "w", "made")
    view = scene.view(initializer, cluster)
    doors = [scene.helper, scene.by("helper", scene.cluster), view, scene.by("helper", cluster), scene.master]
    for api in doors:
        if api.send("GET", f"{CONFIGMAPS}/plain").code == 404:
            once(api.send("POST", CONFIGMAPS, configmap("plain")))
        for query in ("", "?dryRun=All"):
            for way, answer in tries(api, query):
                assert answer.code == 403, (api.prefix, way, query, answer.body)
                assert answer.message == "poison", (api.prefix, way)
        assert "poison" not in api.get(CONFIGMAPS).body.decode()
        once(api.send("PATCH", f"{CONFIGMAPS}/plain", {"data": {"at": api.prefix + api.token}}, kind=MERGE))
    once(view.send("PATCH", f"{CLUSTER}/status", {"status": {"initializers": []}}, kind=MERGE))
    scene.reach("w", "Ready")
    once(scene.helper.send("DELETE", f"{CONFIGMAPS}/plain"))


def once(answer: Answer) -> None:
    """Check that a write succeeded, and that admission was called once for it."""
    assert answer.code in {200, 201}, answer.body
    assert len([text for text in answer.warnings if text.startswith("admitted")]) == 1, answer.warnings


# --- without the guards ---

GUARDS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "required groups": (
        test_without_the_groups_a_workspace_requires_not_even_its_administrator_gets_in,
        """
import atoll.machinery.apiserver.authorization.chain as chain
chain.STEPS = tuple((name, (lambda q: (chain.Outcome.NEXT, ""))) if name == "01-requiredgroups" else (name, step)
                    for name, step in chain.STEPS)
""",
    ),
    "the end of open watches": (
        test_an_inactive_workspace_ends_every_watch_through_which_it_was_seen,
        """
import atoll.machinery.apiserver.serving.open_watches as openwatches
openwatches.OpenWatches._read = lambda self, cursor, check: cursor.read(openwatches.READ_LIMIT)
""",
    ),
    "the end of wildcard watches": (
        test_an_inactive_workspace_ends_every_watch_through_which_it_was_seen,
        """
import atoll.machinery.apiserver.serving.open_watches as openwatches
plain = openwatches.OpenWatches.add
openwatches.OpenWatches.add = lambda self, cluster, *more: plain(self, cluster, *more) if cluster else None
""",
    ),
    "the gate": (
        test_an_inactive_workspace_is_closed_to_views_and_masters_too,
        """
import atoll.machinery.apiserver.serving.pipeline as pipeline
pipeline.check_gate = lambda *arguments: None
""",
    ),
    "admission of everybody": (
        poisoned,
        POISON
        + """
poison = lambda review: None
""",
    ),
    "admission of what comes through a view": (
        poisoned,
        POISON
        + """
everybody = Admission.validate
def of_requests(self, review):
    if review.call.restrictions.check is None:
        everybody(self, review)
Admission.validate = of_requests
""",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("guard", GUARDS)
def test_without_its_guard_a_boundary_is_crossed(
    shard: MutantShard, scene: Scene, guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "PATIENCE_S", 2.0)
    trial, code = GUARDS[guard]
    with shard.without(code), pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        trial(scene)


@pytest.mark.parametrize(
    "trial", dict.fromkeys(trial for trial, _ in GUARDS.values()), ids=lambda trial: trial.__name__
)
def test_with_all_guards_in_place_again_no_boundary_is_crossed(
    shard: MutantShard, scene: Scene, trial: Callable[[Scene], None]
) -> None:
    with shard.without(POISON if trial is poisoned else ""):
        trial(scene)
