"""Kubernetes' kinds in the views of exports: root's own, and that of a provider who claims them by their identity."""

from __future__ import annotations

from harness.clients.api import Api, eventually
from harness.clients.exports import EXPORTS, accepted, bind, claim, make_export, schema
from harness.clients.site_workspaces import CLUSTER
from harness.data.kubernetes_objects import DEPLOYMENTS, deployment

ONE = f"{DEPLOYMENTS}/web"


def id_of(api: Api) -> str:
    return str(api.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"])


def test_roots_view_has_the_objects_of_every_workspace(master: Api, kube: Api) -> None:
    kube.post(DEPLOYMENTS, deployment(replicas=4))
    view = Api(master.shard, "", "", master.token)
    found = view.get("/services/apiexport/root/kubernetes/clusters/*/apis/apps/v1/deployments").json["items"]
    replicas = {each["metadata"]["annotations"]["kcp.io/cluster"]: each["spec"]["replicas"] for each in found}
    assert replicas[id_of(kube)] == 4
    one = view.get(f"/services/apiexport/root/kubernetes/clusters/{id_of(kube)}{ONE}").json
    assert one["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == "25%"


def test_a_provider_scales_what_it_claims_in_the_workspaces_of_its_consumers(
    admin: Api, provider: Api, kube: Api
) -> None:
    identity = admin.get(f"{EXPORTS}/kubernetes").json["status"]["identityHash"]
    claimed = claim("deployments", "apps", identity=identity)
    make_export(provider, "scaler", schema("circles"), claims=[claimed])
    bind(kube, provider.cluster, "scaler", claims=[accepted(claimed)])
    kube.post(DEPLOYMENTS, deployment())
    view = Api(provider.shard, "", "", provider.token)
    path = f"/services/apiexport/{id_of(provider)}/scaler/clusters/{id_of(kube)}{ONE}"
    eventually(lambda: view.get(path, expect=0).code == 200, "the view has the claimed Deployment", 30.0)
    view.patch(path, {"spec": {"replicas": 7}})
    assert kube.get(ONE).json["spec"]["replicas"] == 7
