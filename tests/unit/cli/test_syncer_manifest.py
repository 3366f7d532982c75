"""The manifest that registers an edge cluster: seven objects, named by the SyncTarget, one key to renew."""

from __future__ import annotations

import hashlib

import pytest
import yaml

from atoll.cli.kubectl.kubestellar.manifest import Registration, manifests, rights, syncer_id
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.config import load
from atoll.syncer.config import SyncerConfig

UID = "1a045336-8178-4026-8a56-5cd5609c0ec1"
SERVER: Object = {"server": "https://center:6443/prefix/clusters/root", "certificate-authority-data": "Q0E="}


def registration(*resources: str) -> Registration:
    name = syncer_id("florin", UID)
    return Registration(
        id=name,
        namespace="edge",
        target="florin",
        uid=UID,
        cluster="2x8kq",
        token="secret",
        image="atoll:1",
        replicas=2,
        qps=20.0,
        burst=30,
        resources=resources,
    )


@pytest.fixture
def written() -> list[Object]:
    return list(manifests(registration(), SERVER))


def test_an_id_is_the_name_and_eight_digits_of_base_36_of_a_digest_of_the_uid() -> None:
    name, _, digits = syncer_id("florin", UID).rpartition("-")
    assert name == "kubestellar-syncer-florin"
    number = int.from_bytes(hashlib.sha224(UID.encode()).digest())
    # The first eight digits are the number without its others.
    assert len(digits) == 8
    others = next(count for count in range(60) if number // 36**count < 36**8)
    assert int(digits, 36) == number // 36**others
    assert syncer_id("florin", UID) == syncer_id("florin", UID) != syncer_id("florin", UID.replace("1", "2"))


def test_seven_objects_are_written_in_the_order_in_which_they_are_applied(written: list[Object]) -> None:
    name = syncer_id("florin", UID)
    assert [(each["kind"], each["metadata"]["name"]) for each in written] == [
        ("Namespace", "edge"),
        ("ServiceAccount", name),
        ("Secret", f"{name}-token"),
        ("ClusterRole", name),
        ("ClusterRoleBinding", name),
        ("Secret", name),
        ("Deployment", name),
    ]
    assert {each["metadata"].get("namespace", "edge") for each in written} == {"edge"}


def test_its_kubeconfig_leads_to_one_mailbox_and_names_the_token_beside_it(written: list[Object]) -> None:
    secret = written[5]["stringData"]
    assert secret["token"] == "secret"
    kubeconfig = yaml.safe_load(secret["kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"] == {
        "server": "https://center:6443/prefix/services/mailbox/clusters/2x8kq",
        "certificate-authority-data": "Q0E=",
    }
    assert kubeconfig["users"] == [{"name": "default-user", "user": {"tokenFile": "token"}}]
    assert "secret" not in secret["kubeconfig"]


def test_its_deployment_replaces_a_syncer_before_the_next_begins(written: list[Object]) -> None:
    spec = written[6]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (2, {"type": "Recreate"})
    container = spec["template"]["spec"]["containers"][0]
    assert container["command"] == ["atoll", "syncer"]
    assert f"--sync-target-uid={UID}" in container["args"]
    assert container["volumeMounts"][0]["readOnly"]


def test_its_kubelet_asks_where_the_syncer_listens(written: list[Object]) -> None:
    container = written[6]["spec"]["template"]["spec"]["containers"][0]
    environment = {each["name"]: "10.0.0.7" for each in container["env"]}
    arguments = [each.replace("$(POD_IP)", environment["POD_IP"]) for each in container["args"]]
    config, _ = load(SyncerConfig, arguments, {}, "atoll syncer")
    assert config.bind_address == "10.0.0.7"
    assert [(each["name"], each["containerPort"]) for each in container["ports"]] == [("health", config.port)]
    paths = [container[each]["httpGet"]["path"] for each in ("livenessProbe", "readinessProbe")]
    assert paths == ["/livez", "/readyz"]
    assert {container[each]["httpGet"]["port"] for each in ("livenessProbe", "readinessProbe")} == {"health"}


def test_narrow_rights_are_those_of_its_resources_and_what_every_syncer_needs() -> None:
    found = list(rights(registration("configmaps", "secrets", "deployments.apps")))
    kinds = [(each["kind"], each["metadata"].get("namespace", "")) for each in found]
    roles = [("ClusterRole", ""), ("Role", "edge"), ("Role", "default")]
    assert kinds == [(f"{kind}{suffix}", place) for kind, place in roles for suffix in ("", "Binding")]
    rules = {
        (group, resource): set(rule["verbs"])
        for rule in found[0]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    writing = {"get", "list", "watch", "create", "delete", "patch"}
    assert rules == {
        ("", "namespaces"): writing - {"delete"},
        ("apiextensions.k8s.io", "customresourcedefinitions"): {"get", "list", "watch"},
        **dict.fromkeys([("", "configmaps"), ("", "secrets"), ("apps", "deployments")], writing),
    }
    name = syncer_id("florin", UID)
    assert found[2]["rules"][0]["resourceNames"] == [name], "its own token"
    assert {each["roleRef"]["kind"] for each in found[1::2]} == {"ClusterRole", "Role"}
    assert all(each["subjects"][0]["name"] == name for each in found[1::2])
