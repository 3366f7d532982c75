"""Clients and controllers of kcp, written in Go, on a site: tests/go, cmd/kcpclients, and the module tests/go/kcp.

The module kcp belongs to the long tier: kcp's caches are built on earlier versions of Kubernetes' libraries than the
other programs, and compile them once more.
"""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from harness.clients.api import Api, Object, eventually
from harness.clients.exports import (
    BINDINGS,
    accepted,
    an_object,
    bind,
    binding,
    claim,
    make_export,
    objects_path,
    schema,
    unbind,
)
from harness.clients.go_programs import BUILD_TIMEOUT_S, RUN_TIMEOUT_S, go, running, verified
from harness.clients.site_operations import MAPS, made
from harness.clients.site_workspaces import WORKSPACES, on, ready
from harness.servers.site import Site

pytestmark = pytest.mark.timeout(int(BUILD_TIMEOUT_S + RUN_TIMEOUT_S))

CLIENTS = {
    "workspaces",
    "logical clusters",
    "export",
    "bindings",
    "endpoints",
    "older version",
    "updates",
    "wildcard list",
    "wildcard watch",
    "shards",
    "discovery",
    "conflict",
    "delete",
}
CIRCLES, CLAIMS = schema("circles"), [claim("configmaps"), claim("events", "events.k8s.io")]
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
TYPES = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
PATIENCE_S = 60.0


class Place(NamedTuple):
    """A workspace: its path, its cluster, and its administrator through the proxy."""

    path: str
    cluster: str
    api: Api


def place(site: Site, shard: str) -> Place:
    path, cluster = made(site, "root", shard)
    return Place(path, cluster, site.proxy.api(path))


def entered(site: Site, path: str, directory: Path, user: str = "") -> Path:
    """The site's kubeconfig, in a workspace; as a user of no group, if one is named."""
    go()
    document = yaml.safe_load(site.kubeconfig.read_text())
    if user:
        pair = site.certificate(user)
        data = {"client-certificate-data": pair.certificate, "client-key-data": pair.key}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        document["users"] = [{"name": "kcp-admin", "user": encoded}]
    current = next(each for each in document["clusters"] if each["name"] == document["current-context"])
    current["cluster"]["server"] = f"{site.proxy.url}/clusters/{path}"
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    kubeconfig.chmod(0o600)
    return kubeconfig


def addresses(site: Site, *names: str) -> list[str]:
    return [f"{name}={site.shards[name].url}" for name in names]


@pytest.fixture
def provider(site: Site) -> Place:
    """A workspace on shard-1 that exports circles, with claims on ConfigMaps and Events."""
    made = place(site, "shard-1")
    make_export(made.api, "shapes", CIRCLES, claims=CLAIMS)
    return made


def allow(at: Place, user: str, *rules: Object) -> None:
    """Let a user enter a workspace and do what the rules say, and no more."""
    name, group = f"for-{user}", "rbac.authorization.k8s.io"
    enter = {"nonResourceURLs": ["/"], "verbs": ["access"]}
    at.api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [enter, *rules]})
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    body = {"metadata": {"name": name}, "subjects": subjects, "roleRef": reference}
    at.api.post(f"{RBAC}/clusterrolebindings", body)


def reachable(site: Site, user: str, view: str) -> None:
    """Return once every shard opens its view to the user: a controller does not try again."""
    for shard in site.shards.values():
        api = shard.api("", user)
        api.prefix = f"/services/{view}/clusters/*"
        eventually(
            partial(lambda api: api.get("/api", expect=0).code == 200, api), f"{view} on {shard.name}", PATIENCE_S
        )


def rule(group: str, resource: str, name: str, *verbs: str) -> Object:
    return {"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": list(verbs)}


def consumer(site: Site, provider: Place, shard: str) -> Place:
    """A workspace on a shard that binds circles and accepts the claims."""
    at = place(site, shard)
    probe, dry = binding(provider.path, "shapes", called="probe"), f"{BINDINGS}?dryRun=All"
    # Admission finds the export once its shard's rows have arrived.
    eventually(lambda: at.api.post(dry, probe, expect=0).code == 201, f"known on {shard}", PATIENCE_S)
    bind(at.api, provider.path, "shapes", [accepted(each) for each in CLAIMS])
    return at


def marked(at: Place, name: str) -> None:
    """Return once a circle has its mark, of its own cluster and path, and a status."""

    def look() -> bool:
        mark = at.api.get(f"{MAPS}/{name}-mark", expect=0)
        if mark.code != 200:
            return False
        assert mark.json["data"] == {"cluster": at.cluster, "path": at.path}
        found = at.api.get(f"{objects_path(CIRCLES)}/{name}").json
        return bool((found.get("status") or {}).get("replicas") == found["metadata"]["generation"])

    eventually(look, f"{name} of {at.path} is marked", PATIENCE_S)


def recorded(at: Place) -> bool:
    """Whether the controller's Event is in the workspace."""
    found = at.api.get(EVENTS).json["items"]
    return any(each["reason"] == "Marked" and each["regarding"]["name"] == "same" for each in found)


def test_cluster_aware_clients_of_kcp_work_over_two_shards(site: Site, tmp_path: Path) -> None:
    home, _ = made(site, "root", "root")
    kubeconfig = entered(site, home, tmp_path)
    assert verified("kcpclients", kubeconfig, *addresses(site, "shard-1", "root")).keys() == CLIENTS


@pytest.mark.long
def test_a_manager_of_multicluster_provider_serves_consumers_on_three_shards(
    site: Site, provider: Place, tmp_path: Path
) -> None:
    consumers = [consumer(site, provider, shard) for shard in ("root", "shard-2")]
    for at in consumers:
        at.api.post(objects_path(CIRCLES), an_object(CIRCLES, "same"))
    allow(
        provider,
        "keeper",
        rule("apis.kcp.io", "apiexportendpointslices", "shapes", "get", "list", "watch"),
        rule("apis.kcp.io", "apiexports/content", "shapes", "*"),
    )
    reachable(site, "keeper", f"apiexport/{provider.cluster}/shapes")
    kubeconfig = entered(site, provider.path, tmp_path, "keeper")
    with running("providers", "-kubeconfig", kubeconfig, "apiexport", "shapes", module="kcp") as manager:
        for at in consumers:
            manager.until(f"engaged {at.cluster}")
            marked(at, "same")
            eventually(partial(recorded, at), f"an event in {at.path}", PATIENCE_S)
        # A shard whose first consumer comes while it runs.
        later = consumer(site, provider, "shard-1")
        manager.until(f"engaged {later.cluster}")
        later.api.post(objects_path(CIRCLES), an_object(CIRCLES, "same"))
        marked(later, "same")
        # An update and a deletion of one touch nobody else's.
        gone = consumers[0]
        gone.api.patch(f"{objects_path(CIRCLES)}/same", {"spec": {"replicas": 3}})
        marked(gone, "same")
        gone.api.delete(f"{objects_path(CIRCLES)}/same")
        eventually(lambda: gone.api.get(f"{MAPS}/same-mark", expect=0).code == 404, "no mark", PATIENCE_S)
        # Its finalizer holds nothing back when a consumer leaves.
        unbind(consumers[1].api, "shapes")
        manager.until(f"disengaged {consumers[1].cluster}")
        assert consumers[1].api.get(f"{MAPS}/same-mark", expect=0).code == 404
        later.api.post(objects_path(CIRCLES), an_object(CIRCLES, "after"))
        marked(later, "after")


@pytest.mark.long
def test_an_initializer_on_multicluster_provider_lets_workspaces_of_three_shards_go_on(
    site: Site, tmp_path: Path
) -> None:
    home = place(site, "shard-1")
    extends = {"with": [{"name": "universal", "path": "root"}]}
    type = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "slow"}}
    home.api.post(TYPES, {**type, "spec": {"initializer": True, "extend": extends}})
    allow(home, "starter", rule("tenancy.kcp.io", "workspacetypes", "slow", "get", "list", "watch", "initialize"))
    reachable(site, "starter", f"initializingworkspaces/{home.cluster}:slow")
    kubeconfig = entered(site, home.path, tmp_path, "starter")

    def create(name: str, shard: str) -> None:
        spec = {"type": {"name": "slow", "path": home.path}, "location": {"selector": {"matchLabels": on(shard)}}}
        body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}
        home.api.post(WORKSPACES, body)

    for shard in site.shards:
        create(f"before-{shard}", shard)
    waiting = [ready(home.api, f"before-{shard}", "Initializing") for shard in site.shards]
    with running("providers", "-kubeconfig", kubeconfig, "initializing", "slow", module="kcp") as manager:
        for shard in site.shards:
            create(f"later-{shard}", shard)
        for name in [f"{when}-{shard}" for when in ("before", "later") for shard in site.shards]:
            cluster = ready(home.api, name)["spec"]["cluster"]
            manager.until(f"engaged {cluster}")
            inside = site.proxy.api(f"{home.path}:{name}")
            eventually(partial(lambda api: api.get(f"{MAPS}/initialized", expect=0).code == 200, inside), name)
            assert inside.get(f"{MAPS}/initialized").json["data"] == {"cluster": cluster}
        for each in waiting:
            manager.until(f"disengaged {each['spec']['cluster']}")


@pytest.mark.long
def test_informers_of_kcp_hold_every_workspace_of_each_shard(site: Site, provider: Place, tmp_path: Path) -> None:
    shards = ("root", "shard-2")
    before = {shard: consumer(site, provider, shard) for shard in shards}
    kubeconfig = entered(site, "root", tmp_path)
    arguments = addresses(site, *shards)
    with running("informers", "-kubeconfig", kubeconfig, *arguments, module="kcp") as informers:
        for shard, at in before.items():
            informers.until(f"synced {shard}")
            informers.until(f"bound {shard} {at.cluster} shapes")
        for shard in shards:
            later = consumer(site, provider, shard)
            informers.until(f"bound {shard} {later.cluster} shapes")
            unbind(before[shard].api, "shapes")
            informers.until(f"unbound {shard} {before[shard].cluster} shapes")
        # Each shard has its own workspaces alone.
        assert f"bound root {before['shard-2'].cluster} shapes" not in informers.seen
