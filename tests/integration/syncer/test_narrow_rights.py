"""A syncer whose rights at its edge are narrowed carries what is within them, and reports the rest."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from atoll.cli.kubectl.kubestellar.manifest import Registration, rights, syncer_id
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.syncer.syncer import Options
from harness.clients.api import Api, configmap
from harness.servers.edge_cluster import EdgeCluster
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import TIMING, syncing
from harness.waits import until

UID, PLACE = "1a045336-8178-4026-8a56-5cd5609c0ec1", "edge"
ID = syncer_id("florin", UID)
CONFIGMAPS = Resource("", "v1", "configmaps")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{}}/rolebindings",
}
WAIT_S = 90.0


def registered(api: Api, *resources: str) -> str:
    """Make the account of a syncer with these rights, as its manifest does; a token of it."""
    found = Registration(
        id=ID,
        namespace=PLACE,
        target="florin",
        uid=UID,
        cluster="box",
        token="",
        image="atoll:1",
        replicas=1,
        qps=20.0,
        burst=30,
        resources=resources,
    )
    api.post("/api/v1/namespaces", {"metadata": {"name": PLACE}})
    accounts = f"/api/v1/namespaces/{PLACE}/serviceaccounts"
    api.post(accounts, {"metadata": {"name": ID}})
    for each in rights(found):
        api.post(PATHS[each["kind"]].format(each["metadata"].get("namespace", "")), each)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(api.post(f"{accounts}/{ID}/token", request).json["status"]["token"])


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_what_narrow_rights_do_not_reach_is_reported_and_the_rest_is_carried(tmp_path: Path) -> None:
    cluster = await asyncio.to_thread(lambda: EdgeCluster(tmp_path).__enter__())
    try:
        token = await asyncio.to_thread(registered, Api(cluster), "configmaps", "deployments.apps")
        administrator = Kubeconfig.load(str(cluster.kubeconfig)).target()
        narrow = replace(administrator, headers=(("authorization", f"Bearer {token}"),))
        secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "default"}}
        role: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
        role |= {"metadata": {"name": "power"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
        async with MailboxView.serving() as view, Client(administrator) as edge:
            view.place(configmap("within", {"a": "1"}, namespace="default"))
            view.place(secret, resource="secrets")
            view.place(role, resource="clusterroles")
            async with syncing((narrow, ""), view.target, Options(UID, 200.0, 200, None, TIMING, TIMING)):

                async def is_reported() -> bool:
                    rows = view.config_status.get("errors") or ()
                    found = {(each["resource"], each["reason"]) for each in rows}
                    return found >= {("secrets", "Forbidden"), ("clusterroles", "Forbidden")}

                await until(is_reported, "what it may not write is reported", WAIT_S)

                async def is_carried() -> bool:
                    names = [each["metadata"]["name"] for each in (await edge.list(CONFIGMAPS, "default"))["items"]]
                    return "within" in names

                await until(is_carried, "what it may write is there", WAIT_S)
                secrets = (await edge.list(Resource("", "v1", "secrets"), "default"))["items"]
                assert "key" not in [each["metadata"]["name"] for each in secrets]
                view.place(configmap("within", {"a": "2"}, namespace="default"))

                async def is_changed() -> bool:
                    return bool((await edge.get(CONFIGMAPS, "within", "default"))["data"] == {"a": "2"})

                await until(is_changed, "what is within its rights goes on", WAIT_S)
                conditions = {each["type"]: each["status"] for each in view.config_status["conditions"]}
                assert conditions["Synced"] == "False"
    finally:
        await asyncio.to_thread(cluster.__exit__)
