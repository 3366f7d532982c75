"""A syncer on a plain Kubernetes cluster: Deployments become available there, and their status is in the mailbox."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound
from atoll.syncer.syncer import Options
from harness.clients.api import configmap, crd
from harness.servers.edge_cluster import EdgeCluster
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import TIMING, is_idle, syncing
from harness.waits import until

DEPLOYMENTS, SERVICES = Resource("apps", "v1", "deployments"), Resource("", "v1", "services")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
WAIT_S = 90.0


def workload(name: str) -> list[tuple[str, Object]]:
    """An application with an account, a role, a Service and a Deployment, by resource."""
    labels = {"app": name}
    head: Object = {"name": name, "namespace": "shop"}
    container = {"name": "main", "image": "example/main", "resources": {"requests": {"cpu": "0.5"}}}
    pod = {"serviceAccountName": name, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    ports = {"selector": labels, "ports": [{"port": 80}]}
    return [
        ("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": head}),
        ("clusterroles", {**_role(name), "rules": rules}),
        ("services", {"apiVersion": "v1", "kind": "Service", "metadata": head, "spec": ports}),
        ("deployments", {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": head, "spec": spec}),
    ]


def _role(name: str) -> Object:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_an_application_runs_reports_and_is_taken_away_and_nothing_is_written_twice(tmp_path: Path) -> None:
    cluster = await asyncio.to_thread(lambda: EdgeCluster(tmp_path).__enter__())
    try:
        target = Kubeconfig.load(str(cluster.kubeconfig)).target()
        async with MailboxView.serving() as view, Client(target) as edge:
            refs = [ref for resource, obj in workload("web") for ref in view.place(obj, resource=resource)]
            refs += view.place(crd("boats", "plain.example.com"), resource="customresourcedefinitions")
            boat: Object = {"apiVersion": "plain.example.com/v1", "kind": "Boat"}
            boat |= {"metadata": {"name": "b", "namespace": "shop"}, "spec": {"replicas": 1}}
            refs += view.place(boat, resource="boats")
            wrong = view.place(configmap("wrong", {"no key": ""}, namespace="shop"))
            options = Options("plain", 200.0, 200, tmp_path / "state", TIMING, TIMING)
            async with syncing((target, ""), view.target, options) as syncer:

                async def available() -> bool:
                    return all(
                        view.status(ref).get("availableReplicas") == 2 for ref in refs if ref.resource == "deployments"
                    )

                await until(available, "the Deployment's status is in the mailbox", WAIT_S)
                assert view.status(next(ref for ref in refs if ref.resource == "services")) == {"loadBalancer": {}}
                assert [ref.name for ref in syncer.failures] == ["wrong"]
                view.withdraw(*wrong)
                await until(is_idle(syncer, view), "everything was looked at", WAIT_S)
            async with syncing((target, ""), view.target, options) as again:
                await until(is_idle(again, view), "everything was looked at again", WAIT_S)
                assert again.downsync is not None
                assert (again.downsync.applies, again.downsync.deletions) == (0, 0)
                view.withdraw(*refs)

                async def gone() -> bool:
                    left = [*(await edge.list(DEPLOYMENTS, "shop"))["items"], *(await edge.list(CRDS))["items"]]
                    try:
                        await edge.get(ROLES, "web")
                    except NotFound:
                        return not left
                    return False

                await until(gone, "all of it is gone", WAIT_S)
                assert not again.failures
    finally:
        await asyncio.to_thread(cluster.__exit__)
