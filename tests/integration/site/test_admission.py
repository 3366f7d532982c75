"""What the workspace of an export configures acts on its consumers on every shard, also while its own shard is down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import Answer, Api, Object, eventually
from harness.clients.exports import bind, make_export, schema
from harness.clients.refusers import MARK, REFUSERS, Refuser, ValidatingPolicy
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.site import Site

CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
TYPES = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    with Site(directory, shards=2, flags={"egress_allow_cidr": "127.0.0.0/8"}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(site: Site) -> Iterator[Api]:
    api = site.root.api("root")
    yield api
    api.close()


def place(site: Site, admin: Api, shard: str) -> Api:
    """A new workspace on a shard, once the shard resolves its path."""
    made = ready(admin, workspace(admin, selector=on(shard)))
    process = site.shards[shard]
    path = f"root:{made['metadata']['name']}"
    eventually(lambda: process.api(path).get(TYPES, expect=0).code == 200, f"{path} at {shard}", PATIENCE_S)
    return process.api(made["spec"]["cluster"])


@pytest.fixture(scope="module")
def provider(site: Site, admin: Api) -> Api:
    made = place(site, admin, "shard-1")
    make_export(made, "shapes", schema("circles"))
    return made


@pytest.fixture(scope="module")
def consumer(site: Site, admin: Api, provider: Api) -> Api:
    made = place(site, admin, "root")
    bind(made, provider.cluster, "shapes")
    return made


def attempt(api: Api) -> Answer:
    circle: Object = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": MARK}}
    return api.post(f"{CIRCLES}?dryRun=All", circle, expect=0)


def refuses(refuser: Refuser, consumer: Api) -> None:
    eventually(lambda: refuser.refused(attempt(consumer)), f"{refuser.text} at the consumer's shard", PATIENCE_S)


@pytest.mark.parametrize("kind", REFUSERS)
def test_a_configuration_of_a_provider_on_another_shard_acts_and_stops_acting(
    provider: Api, consumer: Api, kind: str
) -> None:
    refuser = REFUSERS[kind](resources=["circles"])
    with refuser.installed(provider):
        refuses(refuser, consumer)
    eventually(lambda: attempt(consumer).code == 201, "it no longer acts", PATIENCE_S)


@pytest.mark.long
def test_it_acts_while_the_shard_of_the_provider_is_down(site: Site, provider: Api, consumer: Api) -> None:
    refuser = ValidatingPolicy(resources=["circles"])
    with refuser.installed(provider):
        refuses(refuser, consumer)
        site.shards["shard-1"].stop()
        try:
            assert refuser.refused(attempt(consumer))
        finally:
            provider.close()
            site.shards["shard-1"].start()
