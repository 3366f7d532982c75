"""Writes through the apiexport view: their checks until the commit, and the users that act in the workspace."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.machinery.apiserver.authorization.effective_users import effective_users
from atoll.machinery.apiserver.call.call import Call, Plan
from atoll.machinery.apiserver.call.preferences import preferences_of
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.apiserver.request import Observer, Request
from atoll.machinery.apiserver.writing.commit import complete
from atoll.machinery.meta.names import ROOT, ResourceType
from atoll.machinery.meta.status import Forbidden
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS, CONFIG_MAPS
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import GuardFailed, RevisionUnchanged
from atoll.machinery.wire.exchange import Exchange, HttpRequest, Peer
from atoll.virtualworkspaces.apiexport import ExportView
from atoll.virtualworkspaces.export_user import ORIGINAL_GROUPS, ORIGINAL_NAME, acting
from atoll.virtualworkspaces.framework import VirtualWorkspace
from harness.clients.exports import accepted, an_object, binding, claim, export, schema
from harness.oracles.claim_labels import claim_pair
from harness.servers.in_process.shard import InsideShard, shard_inside

CIRCLES = schema("circles")
CLAIM = claim("configmaps")
PROVIDER = User("provider", ("system:masters",))


class Site:
    """A provider in root with circles and a claim on ConfigMaps, and one consumer that accepted it."""

    def __init__(self, shard: InsideShard, cluster: str) -> None:
        self.shard, self.cluster = shard, cluster
        made = shard.loopback.get(API_EXPORTS, ROOT, "", "shapes")
        assert made is not None
        self.circles = ResourceType("shapes.example.com", "circles", made["status"]["identityHash"])
        self._view = VirtualWorkspace(ExportView(shard.app.core.catalogs, shard.app.authorizer))

    def request(self, method: str, path: str, obj: dict[str, Any] | None = None) -> Request:
        """Return a request that has not entered the view."""
        target = f"/services/apiexport/root/shapes/clusters/{self.cluster}{path}"
        http = HttpRequest(method, target.encode(), {}, json.dumps(obj).encode(), Peer("127.0.0.1", 1))
        info, observer = parse(method, http.target), cast(Observer, None)
        request = Request(cast(Exchange, _Exchange(http)), preferences_of(http), "", info, observer, 0.0)
        request.user = PROVIDER
        return request

    def entered(self, method: str, path: str) -> Request:
        """Return a request that the view admits in the current state."""
        request = self.request(method, path)
        with self.shard.app.core.store.snapshot() as snapshot:
            self._view.enter(request, snapshot)
        assert self.goes_on(request)
        return request

    def goes_on(self, request: Request) -> bool:
        with self.shard.app.core.store.snapshot() as snapshot:
            return request.scope.authorize(snapshot, request.info.verb).allowed

    def planned(self, method: str, path: str, obj: dict[str, Any]) -> tuple[Call, Plan]:
        """Return a write through the view, planned in the current state."""
        request = self.request(method, path, obj)
        http, core = request.http, self.shard.app.core
        with core.store.snapshot() as snapshot:
            self._view.enter(request, snapshot)
            assert request.scope.authorize(snapshot, request.info.verb).allowed
            info, catalog = request.info, request.scope.catalog
            assert catalog is not None
            kind = catalog.find(info.group, info.version, info.resource)
            assert kind is not None
            call = Call(
                info=info,
                user=request.user,
                cluster=request.cluster,
                kind=kind,
                body=http.body,
                restrictions=request.scope.restrictions,
                now="2026-01-01T00:00:00Z",
            )
            return call, complete(core.planner(call)(call, snapshot), call, snapshot)

    async def answer(self, state: str, **selector: Any) -> None:
        """Accept or reject the claim for the objects of a selector."""
        found = self.shard.loopback.get(API_BINDINGS, self.cluster, "", "shapes")
        assert found is not None
        spec = {**found["spec"], "permissionClaims": [accepted(CLAIM, state, **selector)]}
        await self.shard.loopback.update(
            self.shard.target(API_BINDINGS, self.cluster, "", "shapes"), {**found, "spec": spec}
        )


class _Exchange:
    def __init__(self, request: HttpRequest) -> None:
        self.request = request


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with shard_inside(tmp_path) as shard:
        cluster = await shard.workspace("shop")
        for type, obj in ((API_RESOURCE_SCHEMAS, CIRCLES), (API_EXPORTS, export("shapes", CIRCLES, claims=[CLAIM]))):
            await shard.loopback.create(shard.target(type, ROOT, "", obj["metadata"]["name"]), obj)
        await shard.until_idle()
        bound = binding("root", "shapes", [accepted(CLAIM)])
        await shard.loopback.create(shard.target(API_BINDINGS, cluster, "", "shapes"), bound)
        await shard.until_idle()
        yield Site(shard, cluster)


CONFIGMAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


async def test_a_write_that_was_let_in_is_not_done_when_the_consent_went_before(site: Site) -> None:
    _, plan = site.planned("POST", "/api/v1/namespaces/default/configmaps", CONFIGMAP)
    await site.answer("Rejected")
    with pytest.raises(GuardFailed) as refused:
        await site.shard.app.store.submit(plan.mutations, plan.guards)
    assert isinstance(refused.value.guard, RevisionUnchanged) and refused.value.guard.key.type == API_BINDINGS
    assert site.shard.loopback.get(CONFIG_MAPS, site.cluster, "default", "a") is None


async def test_a_write_is_judged_anew_in_the_state_it_is_planned_in(site: Site) -> None:
    call, _ = site.planned("POST", "/api/v1/namespaces/default/configmaps", CONFIGMAP)
    await site.answer("Rejected")
    core = site.shard.app.core
    with core.store.snapshot() as snapshot, pytest.raises(Forbidden, match="access was withdrawn"):
        core.planner(call)(call, snapshot)
    with pytest.raises(Forbidden, match="access was withdrawn"):
        await core.commit(call, core.planner(call))


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_what_is_selected_no_more_is_out_of_reach_though_its_label_is_there(site: Site, method: str) -> None:
    path = "/api/v1/namespaces/default/configmaps/a"
    carried = dict([claim_pair("root", "shapes", "", "configmaps")])
    before = site.entered(method, path)
    assert before.scope.restrictions.labels is not None and before.scope.restrictions.labels.matches(carried)
    await site.answer("Accepted", matchLabels={"team": "a"})
    assert not site.goes_on(before)
    after = site.entered(method, path)
    labels = after.scope.restrictions.labels
    assert labels is not None
    assert labels.matches({**carried, "team": "a"}) and not labels.matches(carried)


@pytest.mark.parametrize("new", [None, {"team": "a"}])
async def test_nothing_is_brought_into_a_claim_or_deleted_by_what_it_does_not_select(
    site: Site, new: dict[str, str] | None
) -> None:
    request = site.entered("PATCH", "/api/v1/namespaces/default/configmaps/a")
    await site.answer("Accepted", matchLabels={"team": "a"})
    old = {**CONFIGMAP, "metadata": {"name": "a", "labels": dict([claim_pair("root", "shapes", "", "configmaps")])}}
    obj = {**CONFIGMAP, "metadata": {"name": "a", "labels": new}} if new else None
    with site.shard.app.core.store.snapshot() as snapshot, pytest.raises(Forbidden, match="do not match the selector"):
        assert request.scope.restrictions.write_rule is not None
        request.scope.restrictions.write_rule(snapshot, obj, old)


async def test_without_a_change_it_is_done(site: Site) -> None:
    body = an_object(CIRCLES, "a")
    _, plan = site.planned("POST", "/apis/shapes.example.com/v1/namespaces/default/circles", body)
    await site.shard.app.store.submit(plan.mutations, plan.guards)
    assert site.shard.loopback.get(site.circles, site.cluster, "default", "a") is not None


async def test_somebody_elses_binding_does_not_hold_up_a_write(site: Site) -> None:
    _, plan = site.planned("POST", "/api/v1/namespaces/default/configmaps", CONFIGMAP)
    other = await site.shard.workspace("other")
    bound = binding("root", "shapes", [accepted(CLAIM)])
    await site.shard.loopback.create(site.shard.target(API_BINDINGS, other, "", "shapes"), bound)
    await site.shard.app.store.submit(plan.mutations, plan.guards)


def test_a_caller_goes_on_as_himself_with_a_warrant_for_this_workspace_alone() -> None:
    caller = User("worker", ("team",), "u", {"authentication.kcp.io/scopes": ("cluster:home",)})
    there = acting(caller, "shop")
    assert (there.name, there.groups, there.extra[ORIGINAL_NAME], there.extra[ORIGINAL_GROUPS]) == (
        "worker",
        ("team",),
        ("worker",),
        ("team",),
    )
    assert "system:kcp:admin" in effective_users(there, "shop").groups
    for elsewhere in ("home", "root", "another"):
        assert "system:kcp:admin" not in effective_users(there, elsewhere).groups
    assert "system:kcp:admin" not in effective_users(there, "shop").own.groups
