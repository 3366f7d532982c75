"""Configurations of an export's workspace act on consumers' objects of its kinds, beside the consumer's own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pytest

from harness.clients.api import Answer, Api, Object, configmap, crd, define, eventually, workspace_under
from harness.clients.exports import bind, cluster_of, make_export, schema, unbind
from harness.clients.refusers import MARK, REFUSERS, Refuser, ValidatingPolicy, ValidatingWebhook
from harness.servers.virtual_workspaces import viewed

CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class Pair(NamedTuple):
    """A provider that exports circles, and a consumer that binds them."""

    provider: Api
    consumer: Api

    @property
    def view(self) -> Api:
        """The consumer's objects, through the view of the export."""
        prefix = f"/services/apiexport/{cluster_of(self.provider)}/shapes/clusters"
        return viewed(self.provider, f"{prefix}/{cluster_of(self.consumer)}")


def workspace(admin: Api) -> Api:
    return admin.at(workspace_under(admin, type_="universal"))


def circle(name: str) -> Object:
    return {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": name}}


def create(api: Api, name: str = MARK) -> Answer:
    return api.post(CIRCLES, circle(name), expect=0)


@pytest.fixture
def pair(admin: Api) -> Iterator[Pair]:
    provider, consumer = workspace(admin), workspace(admin)
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    yield Pair(provider, consumer)
    provider.close()
    consumer.close()


@pytest.fixture(params=REFUSERS)
def refuser(request: pytest.FixtureRequest) -> Refuser:
    return REFUSERS[request.param](resources=["circles"])


def test_a_provider_refuses_writes_of_its_consumers_directly_and_through_its_view(pair: Pair, refuser: Refuser) -> None:
    with refuser.installed(pair.provider):
        assert refuser.refused(create(pair.consumer))
        assert refuser.refused(create(pair.view))
        assert create(pair.consumer, "harmless").code == 201
    assert create(pair.consumer).code == 201


def test_a_consumer_refuses_writes_through_the_view_of_its_provider(pair: Pair, refuser: Refuser) -> None:
    with refuser.installed(pair.consumer):
        assert refuser.refused(create(pair.view))


def test_a_webhook_of_a_provider_sees_the_cluster_and_the_user_of_the_consumer_once(pair: Pair) -> None:
    own, theirs = ValidatingWebhook(resources=["circles"]), ValidatingWebhook(resources=["circles"])
    with own.installed(pair.consumer), theirs.installed(pair.provider):
        assert create(pair.consumer, "one").code == 201
        for seen in (own, theirs):
            (asked,) = seen.requests
            assert asked["object"]["metadata"]["annotations"]["kcp.io/cluster"] == cluster_of(pair.consumer)
            assert asked["userInfo"]["username"] == "kcp-admin"


def test_a_provider_that_binds_its_own_export_acts_once_on_its_own_objects(pair: Pair) -> None:
    bind(pair.provider, pair.provider.cluster, "shapes")
    own = ValidatingWebhook(resources=["circles"])
    with own.installed(pair.provider):
        assert create(pair.provider, "one").code == 201
        assert [asked["name"] for asked in own.requests] == ["one"]


def test_a_provider_does_not_reach_what_is_not_bound_from_it(pair: Pair) -> None:
    everything = ValidatingWebhook()
    with everything.installed(pair.provider):
        assert pair.consumer.post(CONFIGMAPS, configmap(MARK)).code == 201
        assert everything.requests == []


def test_selectors_see_the_namespace_of_the_consumer(pair: Pair) -> None:
    pair.consumer.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"guarded": "yes"}}})
    refuser = ValidatingPolicy(resources=["circles"])
    path, policy = next(iter(refuser.objects().items()))
    with refuser.installed(pair.provider):
        match = {**policy["spec"]["matchConstraints"], "namespaceSelector": {"matchLabels": {"guarded": "no"}}}
        pair.provider.patch(f"{path}/{refuser.name}", {"spec": {"matchConstraints": match}})
        assert create(pair.consumer, f"{MARK}-1").code == 201
        match["namespaceSelector"] = {"matchLabels": {"guarded": "yes"}}
        pair.provider.patch(f"{path}/{refuser.name}", {"spec": {"matchConstraints": match}})
        assert refuser.refused(create(pair.consumer, f"{MARK}-2"))


def test_who_acts_on_whose_objects_is_as_a_model_says(admin: Api) -> None:
    """Two providers of the same name of a kind, two consumers, and one that defines the kind itself."""
    providers, consumers, own = (
        [workspace(admin) for _ in range(2)],
        [workspace(admin) for _ in range(2)],
        workspace(admin),
    )
    for provider, consumer in zip(providers, consumers, strict=True):
        make_export(provider, "shapes", schema("circles"))
        bind(consumer, provider.cluster, "shapes")
    define(own, crd("circles"))
    for provider in providers:
        define_or_bind(provider)
    everybody = {
        "first": providers[0],
        "second": providers[1],
        "of first": consumers[0],
        "of second": consumers[1],
        "own": own,
    }
    acts = {("first", "of first"), ("second", "of second"), *((name, name) for name in everybody)}
    for configured, api in everybody.items():
        refuser = ValidatingPolicy(resources=["circles"])
        with refuser.installed(api):
            refused = {
                (configured, writer)
                for writer in everybody
                if refuser.refused(everybody[writer].post(f"{CIRCLES}?dryRun=All", circle(MARK), expect=0))
            }
        assert refused == {pair for pair in product([configured], everybody) if pair in acts}


def define_or_bind(provider: Api) -> None:
    """A provider has the kind itself too, bound from its own export: it acts on its own objects once."""
    bind(provider, provider.cluster, "shapes")


def test_a_binding_gone_the_provider_reaches_nothing(pair: Pair) -> None:
    refuser = ValidatingPolicy(resources=["circles"])
    with refuser.installed(pair.provider):
        assert refuser.refused(create(pair.consumer))
        unbind(pair.consumer, "shapes")
        define(pair.consumer, crd("circles"))
        assert create(pair.consumer).code == 201


@pytest.mark.long
def test_objects_of_a_terminating_namespace_are_asked_about(pair: Pair) -> None:
    space = "/api/v1/namespaces/team"
    pair.consumer.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    pair.consumer.post(CIRCLES.replace("default", "team"), circle(MARK))
    refuser = ValidatingWebhook(resources=["circles"], operations=["DELETE"])
    with refuser.installed(pair.provider):
        pair.consumer.delete(space)

        def named() -> bool:
            conditions = pair.consumer.get(space).json["status"].get("conditions", [])
            return any(
                refuser.text in each["message"] and "refuser.example.com" in each["message"] for each in conditions
            )

        eventually(named, "the condition names the webhook")
        assert pair.consumer.get(f"{CIRCLES.replace('default', 'team')}/{MARK}").code == 200
    eventually(lambda: pair.consumer.get(space, expect=0).code == 404, "the namespace is gone", 60.0)


@pytest.mark.long
def test_a_deleted_workspace_waits_for_the_webhook_of_a_provider_but_not_for_its_own(admin: Api, pair: Pair) -> None:
    workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
    name = pair.consumer.cluster.rpartition(":")[2]
    own, theirs = ValidatingPolicy(), ValidatingWebhook(resources=["circles"], operations=["DELETE"])
    pair.consumer.post(CIRCLES, circle(MARK))
    pair.consumer.post(CONFIGMAPS, configmap(MARK))
    for path, body in own.objects().items():
        pair.consumer.post(path, body)
    with theirs.installed(pair.provider):
        admin.delete(f"{workspaces}/{name}")

        def named() -> bool:
            conditions = admin.get(f"{workspaces}/{name}").json["status"].get("conditions", [])
            return any("refuser.example.com" in each.get("message", "") for each in conditions)

        eventually(named, "the condition names the webhook")
    eventually(lambda: admin.get(f"{workspaces}/{name}", expect=0).code == 404, "the workspace is gone", 60.0)
