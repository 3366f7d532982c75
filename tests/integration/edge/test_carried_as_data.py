"""Kinds that would act in the center go from the edge view to mailboxes as data, and take effect at the edge alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig, Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.status import ApiError, NotFound
from atoll.syncer.syncer import Options
from harness.clients.api import Api, Object, configmap, eventually, workspace_under
from harness.servers.in_process.syncer import SERVED, TIMING, syncing
from harness.servers.shard_process import ShardProcess
from harness.waits import until
from integration.edge.mailbox_world import RBAC, MailboxWorld, view
from integration.edge.placed import (
    CONFIGMAPS,
    PLACEMENTS,
    condition,
    inventory,
    is_projected,
    listed,
    mailboxes,
    place,
    workload,
)

__all__ = ["inventory", "mailboxes", "workload"]

DEFAULT, ADMISSION = "/api/v1/namespaces/default", "/apis/admissionregistration.k8s.io/v1"
FLOW, AGGREGATED = "/apis/flowcontrol.apiserver.k8s.io/v1", "/apis/apiregistration.k8s.io/v1"
POLICIES = Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", namespaced=False)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
MAPS = Resource("", "v1", "configmaps")
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
MATCHED = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
NO_BAD = {
    "matchConstraints": {"resourceRules": [MATCHED]},
    "validations": [{"expression": "object.metadata.name != 'bad'", "message": "no bad ones"}],
}
SERVICE = {"group": "a.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15}
#: Path of a collection -> an object of it, without its head.
DATA: dict[str, Object] = {
    f"{RBAC}/clusterroles": {"kind": "ClusterRole", "rules": RULES},
    f"{RBAC}/namespaces/default/roles": {"kind": "Role", "rules": RULES},
    f"{DEFAULT}/serviceaccounts": {"kind": "ServiceAccount"},
    f"{DEFAULT}/limitranges": {"kind": "LimitRange", "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}},
    f"{DEFAULT}/resourcequotas": {"kind": "ResourceQuota", "spec": {"hard": {"count/configmaps": "0"}}},
    f"{ADMISSION}/validatingadmissionpolicies": {"kind": "ValidatingAdmissionPolicy", "spec": NO_BAD},
    f"{ADMISSION}/validatingadmissionpolicybindings": {
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": "v1.a.example.com", "validationActions": ["Deny"]},
    },
    f"{FLOW}/prioritylevelconfigurations": {
        "kind": "PriorityLevelConfiguration",
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
    },
    f"{AGGREGATED}/apiservices": {
        "kind": "APIService",
        "spec": {**SERVICE, "service": {"namespace": "default", "name": "a"}, "insecureSkipTLSVerify": True},
    },
}
#: The name of all of them, as it has to be that of an APIService.
NAME = "v1.a.example.com"
RESOURCES = [path.rpartition("/")[2] for path in DATA]
ALL: Object = {"resources": RESOURCES, "labelSelectors": [{"matchLabels": {"app": "a"}}]}


def as_data(api: Api) -> Api:
    """A workspace in the edge view."""
    found = api.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json
    return view(api, found["metadata"]["annotations"]["kcp.io/cluster"], service="edge-view")


def fill(api: Api, *paths: str) -> None:
    for path in paths or DATA:
        version = "v1" if path.startswith("/api/") else "/".join(path.split("/")[2:4])
        api.post(path, {"apiVersion": version, "metadata": {"name": NAME, "labels": {"app": "a"}}, **DATA[path]})


def present(api: Api) -> set[str]:
    """Paths of the collections that have the object."""
    return {path for path in DATA if api.send("GET", f"{path}/{NAME}").code == 200}


@pytest.mark.long
def test_they_are_copied_from_the_view_into_the_view_and_a_workspaces_own_are_not(
    workload: Api, mailboxes: dict[str, Api]
) -> None:
    source, copies, role = as_data(workload), as_data(mailboxes["one"]), f"{RBAC}/clusterroles/{NAME}"
    fill(source)
    own = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    workload.post(f"{RBAC}/clusterroles", {**own, "metadata": {"name": "own", "labels": {"app": "a"}}, "rules": RULES})
    place(workload, "p", {"env": "one"}, ALL)
    eventually(lambda: present(copies) == set(DATA), "all of it is in the mailbox")
    eventually(lambda: is_projected(workload, "p"), "the condition")
    assert present(mailboxes["one"]) == set()
    copies.get(f"{RBAC}/clusterroles/own", expect=404)
    rows = listed(mailboxes["one"])
    carried = {row["resource"]: row for row in (*rows["clusterScope"], *rows["namespacedObjects"])}
    assert set(carried) == set(RESOURCES)
    assert carried["clusterroles"]["objects"] == [NAME]
    others = [{**RULES[0], "verbs": ["list"]}]
    source.patch(role, {"rules": others})
    eventually(lambda: copies.get(role).json["rules"] == others, "a change of it")
    copies.patch(role, {"rules": RULES})
    eventually(lambda: copies.get(role).json["rules"] == others, "an edit of a copy is reverted")
    source.patch(role, {"rules": []})
    eventually(lambda: not copies.get(role).json["rules"], "nothing is left")
    copies.patch(role, {"rules": RULES})
    eventually(lambda: not copies.get(role).json["rules"], "an edit is reverted where the source has an empty list")
    source.delete(role)
    eventually(lambda: copies.send("GET", role).code == 404, "it goes with its source")
    translator = workload.get(f"{RBAC}/clusterroles/edge-translator").json
    granted = {"apiGroups": ["*"], "resources": ["serviceaccounts"], "verbs": ["get", "list", "patch"]}
    entrance = {"nonResourceURLs": ["/"], "verbs": ["access"]}
    workload.put(f"{RBAC}/clusterroles/edge-translator", {**translator, "rules": [granted, entrance]})
    accounts = f"{DEFAULT}/serviceaccounts"
    eventually(lambda: present(copies) == {accounts}, "what the account may not read under its name is withdrawn")
    eventually(lambda: condition(workload, "p").get("reason") == "Forbidden", "the condition says so")
    workload.delete(f"{PLACEMENTS}/p")
    eventually(lambda: present(copies) == set(), "withdrawn")
    eventually(lambda: listed(mailboxes["one"]) == {"namespaceScope": {}}, "the list is empty")


def test_a_placement_that_names_a_kind_of_the_center_says_so(workload: Api, mailboxes: dict[str, Api]) -> None:
    place(workload, "p", {"env": "one"}, {"apiGroup": "coordination.k8s.io", "resources": ["leases"]})
    wanted = {"status": "False", "reason": "NotCarried", "message": "not carried: leases.coordination.k8s.io"}
    eventually(lambda: wanted.items() <= condition(workload, "p").items(), "the condition")


@pytest.fixture(scope="module")
def cluster(edge: ShardProcess, root: Api) -> tuple[Target, str]:
    """A workspace as edge cluster."""
    return Kubeconfig.load(str(edge.kubeconfig)).target("root"), workspace_under(root)


def outcome(client: Client, resource: Resource, name: str) -> Callable[[], Awaitable[Any]]:
    """An object of the edge cluster, or None."""

    async def look() -> Object | None:
        try:
            return await client.get(resource, name, "default" if resource.namespaced else "")
        except NotFound:
            return None

    return look


async def test_a_policy_and_a_role_of_the_view_take_effect_at_the_edge_and_nowhere_before(
    edge: ShardProcess, root: Api, workload: Api, mailboxes: dict[str, Api], cluster: tuple[Target, str]
) -> None:
    box = MailboxWorld(root, mailboxes["two"].cluster.rpartition(":")[2])
    policies = [path for path in DATA if path.startswith(ADMISSION)]
    fill(as_data(workload), f"{RBAC}/clusterroles", *policies)
    for api in (workload, box.admin):
        api.post(CONFIGMAPS, configmap("bad"))
    place(workload, "p", {"env": "two"}, ALL)
    eventually(lambda: is_projected(workload, "p"), "the mailbox has it")
    for api in (workload, box.admin):
        api.delete(f"{CONFIGMAPS}/bad")
        api.post(CONFIGMAPS, configmap("bad"))
    server = Kubeconfig.load(str(edge.kubeconfig)).target("root")
    path, headers = f"/services/mailbox/clusters/{box.cluster}", (("authorization", f"Bearer {box.token}"),)
    mailbox = Target(server.host, server.port, path, server.tls, headers)
    async with Client(*cluster) as client, syncing(cluster, mailbox, Options("data", 500.0, 500, None, TIMING, SERVED)):
        role = await until(outcome(client, ROLES, NAME), "the role")
        assert role["rules"] == RULES
        await until(outcome(client, POLICIES, NAME), "the policy")

        async def refused() -> str:
            try:
                await client.create(MAPS, configmap("bad"), "default")
            except ApiError as error:
                return error.message
            await client.delete(MAPS, "bad", "default")
            return ""

        assert "no bad ones" in await until(refused, "the policy is in effect")
        workload.delete(f"{PLACEMENTS}/p")

        async def gone() -> bool:
            return await outcome(client, ROLES, NAME)() is None and await outcome(client, POLICIES, NAME)() is None

        await until(gone, "withdrawn at the edge")
