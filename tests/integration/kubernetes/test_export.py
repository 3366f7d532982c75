"""The export `kubernetes` of root: bound like any other, told from another's export of the same kinds, and deleted."""

from __future__ import annotations

from atoll.machinery.kinds.kubernetes.resource_schemas import resource_schema
from harness.clients.api import Api, Object, eventually
from harness.clients.exports import BINDINGS, EXPORTS, SCHEMAS, bind, make_export, unbind, wait_bound
from harness.data.kubernetes_objects import DEPLOYMENTS, deployment


def identity(admin: Api) -> str:
    return str(admin.get(f"{EXPORTS}/kubernetes").json["status"]["identityHash"])


def test_a_workspace_of_type_kubernetes_takes_a_deployment(kube: Api) -> None:
    made = kube.post(DEPLOYMENTS, deployment()).json
    assert made["spec"]["replicas"] == 1
    assert made["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": "25%"}
    assert made["metadata"]["generation"] == 1
    assert kube.get(DEPLOYMENTS).json["items"][0].keys() == {"metadata", "spec", "status"}


def test_its_binding_is_stored_with_the_identity_and_can_be_deleted(admin: Api, consumer: Api) -> None:
    bound = bind(consumer, "root", "kubernetes")
    resources = bound["status"]["boundResources"]
    assert {each["schema"]["identityHash"] for each in resources} == {identity(admin)}
    assert {"deployments", "pods", "services", "horizontalpodautoscalers"} <= {each["resource"] for each in resources}
    consumer.post(DEPLOYMENTS, deployment())
    unbind(consumer, "kubernetes")
    consumer.get(DEPLOYMENTS, expect=404)
    bind(consumer, "root", "kubernetes")
    assert consumer.get(DEPLOYMENTS).json["items"] == []


def test_a_type_of_workspace_binds_it_by_default(kube: Api) -> None:
    names = [each["spec"]["reference"]["export"]["name"] for each in kube.get(BINDINGS).json["items"]]
    assert sorted(names) == ["kubernetes", "tenancy.kcp.io", "topology.kcp.io"]


def test_root_shows_the_schemas_that_it_offers(admin: Api, kube: Api) -> None:
    kube.get(DEPLOYMENTS)
    offered = admin.get(f"{EXPORTS}/kubernetes").json["spec"]["resources"]
    name = next(each["schema"] for each in offered if each["name"] == "deployments")
    schema = admin.get(f"{SCHEMAS}/{name}").json
    assert schema["spec"] == resource_schema("deployments.apps")["spec"]


def test_the_same_kinds_of_another_export_are_a_definition(provider: Api, consumer: Api, kube: Api) -> None:
    """Also under the shipped name: what is served as Kubernetes serves it is root's alone."""
    schema = resource_schema("deployments.apps")
    make_export(provider, "mine", schema)
    bind(consumer, provider.cluster, "mine")
    made = consumer.post(DEPLOYMENTS, deployment()).json
    assert "rollingUpdate" not in made["spec"]["strategy"]
    assert consumer.get(DEPLOYMENTS).json["items"][0]["kind"] == "Deployment"
    assert kube.get(DEPLOYMENTS).json["items"] == []
    assert "rollingUpdate" in kube.post(DEPLOYMENTS, deployment()).json["spec"]["strategy"]


def test_a_schema_under_the_shipped_name_is_validated_like_any_other(provider: Api) -> None:
    schema = resource_schema("deployments.apps")
    schema["spec"]["versions"][0]["schema"]["properties"]["spec"]["type"] = "nothing"
    provider.post(SCHEMAS, schema, expect=403)


def test_another_export_bound_first_keeps_its_kinds_until_it_is_gone(consumer: Api, provider: Api) -> None:
    make_export(provider, "mine", resource_schema("deployments.apps"))
    bind(consumer, provider.cluster, "mine")
    consumer.post(BINDINGS, kubernetes_binding())

    def refused() -> Object | None:
        status = consumer.get(f"{BINDINGS}/kubernetes").json.get("status") or {}
        found = [each for each in status.get("conditions", ()) if each.get("reason") == "NamingConflicts"]
        return found[0] if found else None

    assert "deployments" in eventually(refused, "the conflict is reported")["message"]
    unbind(consumer, "mine")
    wait_bound(consumer, "kubernetes")
    assert "rollingUpdate" in consumer.post(DEPLOYMENTS, deployment()).json["spec"]["strategy"]


def kubernetes_binding() -> Object:
    reference = {"export": {"path": "root", "name": "kubernetes"}}
    return {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIBinding",
        "metadata": {"name": "kubernetes"},
        "spec": {"reference": reference},
    }
