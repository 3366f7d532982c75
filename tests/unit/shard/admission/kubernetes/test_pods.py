"""New Pods: service account and token, priority, tolerations, runtime class, first status."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.meta.status import Forbidden
from atoll.shard.admission.kubernetes.first_status import FirstStatus
from atoll.shard.admission.kubernetes.pod_accounts import PodAccounts
from atoll.shard.admission.kubernetes.priorities import Priorities
from atoll.shard.admission.kubernetes.scheduling import LabelKeys, NodeTaints, RuntimeClasses, Tolerations
from harness.models.kubernetes_workspace import NOW, KubernetesWorkspace

Object = dict[str, Any]
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture
def here() -> KubernetesWorkspace:
    plugins = (PodAccounts(), Priorities(), Tolerations(), RuntimeClasses(), LabelKeys(), NodeTaints(), FirstStatus())
    return KubernetesWorkspace(plugins)


def pod(*containers: Object, **spec: Any) -> Object:
    return {"spec": {"containers": list(containers) or [{"name": "a", "image": "a"}], **spec}}


def account(here: KubernetesWorkspace, name: str, **fields: Any) -> None:
    here.add(here.key("serviceaccounts", name), fields)


def priority_class(here: KubernetesWorkspace, name: str, value: int, **fields: Any) -> None:
    here.add(here.key("priorityclasses", name, group="scheduling.k8s.io", namespace=""), {"value": value, **fields})


def runtime_class(here: KubernetesWorkspace, **fields: Any) -> None:
    here.add(here.key("runtimeclasses", "kata", group="node.k8s.io", namespace=""), fields)


def refusal(here: KubernetesWorkspace, body: Object) -> str:
    with pytest.raises(Forbidden) as refused:
        here.create("pods", "web", body)
    said: str = refused.value.message.removeprefix('pods "web" is forbidden: ')
    return said


# --- service accounts


def test_a_pod_gets_the_default_account_and_its_token_in_every_container(here: KubernetesWorkspace) -> None:
    own = {"name": "b", "image": "b", "volumeMounts": [{"name": "own", "mountPath": TOKEN}]}
    made = here.create("pods", "web", pod({"name": "a", "image": "a"}, own, initContainers=[{"name": "i"}]))["spec"]
    assert (made["serviceAccountName"], made["serviceAccount"]) == ("default", "default")
    (volume,) = made["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert len(volume["name"]) == len("kube-api-access-") + 5
    assert volume["projected"]["sources"][0] == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    mount = {"name": volume["name"], "readOnly": True, "mountPath": TOKEN}
    assert [each.get("volumeMounts") for each in (*made["initContainers"], *made["containers"])] == [
        [mount],
        [mount],
        own["volumeMounts"],
    ]


def test_a_second_planning_of_the_same_pod_names_the_same_volume(here: KubernetesWorkspace) -> None:
    body = {**pod(), "metadata": {"uid": "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0"}}
    names = {here.create("pods", name, body)["spec"]["volumes"][0]["name"] for name in ("a", "b")}
    assert len(names) == 1


@pytest.mark.parametrize(("of_pod", "of_account", "is_mounted"), [(None, False, False), (True, False, True)])
def test_the_pod_decides_before_its_account_whether_the_token_is_mounted(
    here: KubernetesWorkspace, of_pod: bool | None, of_account: bool, is_mounted: bool
) -> None:
    account(here, "robot", automountServiceAccountToken=of_account)
    body = pod(serviceAccountName="robot", **({} if of_pod is None else {"automountServiceAccountToken": of_pod}))
    assert ("volumes" in here.create("pods", "web", body)["spec"]) == is_mounted


def test_a_missing_account_is_refused(here: KubernetesWorkspace) -> None:
    said = 'error looking up service account default/robot: serviceaccount "robot" not found'
    assert refusal(here, pod(serviceAccountName="robot")) == said


def test_pull_secrets_come_from_the_account_unless_the_pod_has_some(here: KubernetesWorkspace) -> None:
    account(here, "default", imagePullSecrets=[{"name": "key"}])
    assert here.create("pods", "a", pod())["spec"]["imagePullSecrets"] == [{"name": "key"}]
    own = [{"name": "own"}]
    assert here.create("pods", "b", pod(imagePullSecrets=own))["spec"]["imagePullSecrets"] == own


def test_an_account_may_limit_secrets_to_those_it_lists(here: KubernetesWorkspace) -> None:
    annotation = {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}
    account(here, "default", metadata=annotation, secrets=[{"name": "known"}])
    volume = {"name": "v", "secret": {"secretName": "other"}}
    end = "is not allowed because service account default does not reference that"
    assert refusal(here, pod(volumes=[volume])) == f'volume with secret.secretName="other" {end} secret'
    env = {"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}
    said = f'container a with envVar E referencing secret.secretName="other" {end} secret'
    assert refusal(here, pod({"name": "a", "env": [env]})) == said
    assert refusal(here, pod(imagePullSecrets=[{"name": "other"}])) == (
        f'imagePullSecrets[0].name="other" {end} imagePullSecret'
    )
    here.create("pods", "web", pod(volumes=[{"name": "v", "secret": {"secretName": "known"}}]))
    debugger = {**here.stored(here.key("pods", "web"))["spec"], "ephemeralContainers": [{"name": "d", "env": [env]}]}
    with pytest.raises(Forbidden, match="ephemeral container d with envVar E"):
        here.update(here.key("pods", "web"), {"spec": debugger}, "ephemeralcontainers")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        ({"imagePullSecrets": [{"name": "a"}]}, "a mirror pod may not reference secrets"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "a"}}]}, "a mirror pod may not reference secrets"),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ],
)
def test_a_mirror_pod_needs_nothing_of_the_server(here: KubernetesWorkspace, spec: Object, said: str) -> None:
    mirror = {"metadata": {"annotations": {"kubernetes.io/config.mirror": "a"}}}
    assert refusal(here, {**pod(**spec), **mirror}) == said
    assert "serviceAccountName" not in here.create("pods", "web", {**pod(), **mirror})["spec"]


# --- priorities


def test_a_priority_follows_from_the_class_of_the_pod(here: KubernetesWorkspace) -> None:
    priority_class(here, "high", 1000, preemptionPolicy="Never")
    spec = here.create("pods", "a", pod(priorityClassName="high"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    spec = here.create("pods", "b", pod(priorityClassName="system-node-critical"))["spec"]
    assert spec["priority"] == 2000001000
    spec = here.create("pods", "c", pod())["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in spec


def test_the_default_class_counts_where_a_pod_names_none(here: KubernetesWorkspace) -> None:
    priority_class(here, "usual", 10, globalDefault=True)
    spec = here.create("pods", "web", pod())["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 10)


def test_a_priority_that_is_not_the_class_s_is_refused(here: KubernetesWorkspace) -> None:
    assert refusal(here, pod(priorityClassName="no")) == "no PriorityClass with name no was found"
    assert refusal(here, pod(priority=5)) == (
        "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 "
        "from the given PriorityClass name"
    )
    assert refusal(here, pod(preemptionPolicy="Never")).startswith("the string value of PreemptionPolicy (Never)")


def test_an_update_without_a_priority_keeps_it(here: KubernetesWorkspace) -> None:
    here.create("pods", "web", pod())
    assert here.update(here.key("pods", "web"), pod())["spec"]["priority"] == 0


def test_at_most_one_priority_class_is_the_default(here: KubernetesWorkspace) -> None:
    def create(name: str) -> None:
        body = {"value": 1, "globalDefault": True}
        here.create("priorityclasses", name, body, group="scheduling.k8s.io", namespace="")

    create("usual")
    with pytest.raises(Forbidden, match="PriorityClass usual is already marked as default"):
        create("other")
    key = here.key("priorityclasses", "usual", group="scheduling.k8s.io", namespace="")
    here.update(key, {"value": 1, "globalDefault": True})


# --- scheduling


def test_a_pod_stays_five_minutes_on_a_lost_node_unless_it_says_otherwise(here: KubernetesWorkspace) -> None:
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    first, second = here.create("pods", "a", pod(tolerations=[own]))["spec"]["tolerations"]
    assert first == own
    assert (second["key"], second["tolerationSeconds"]) == ("node.kubernetes.io/unreachable", 300)
    everything = [{"operator": "Exists"}]
    assert here.create("pods", "b", pod(tolerations=everything))["spec"]["tolerations"] == everything


def test_a_runtime_class_gives_overhead_selector_and_tolerations(here: KubernetesWorkspace) -> None:
    toleration = {"key": "kata", "operator": "Exists"}
    scheduling = {"nodeSelector": {"a": "b"}, "tolerations": [toleration]}
    runtime_class(here, overhead={"podFixed": {"cpu": "100m"}}, scheduling=scheduling)
    spec = here.create("pods", "web", pod(runtimeClassName="kata", overhead={"cpu": "0.1"}))["spec"]
    assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "100m"}, {"a": "b"})
    assert toleration in spec["tolerations"]


def test_what_contradicts_the_runtime_class_is_refused(here: KubernetesWorkspace) -> None:
    runtime_class(here, overhead={"podFixed": {"cpu": "100m"}}, scheduling={"nodeSelector": {"a": "b"}})
    assert refusal(here, pod(runtimeClassName="no")) == 'pod rejected: RuntimeClass "no" not found'
    assert refusal(here, pod(runtimeClassName="kata", overhead={"cpu": "1"})) == (
        "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    )
    assert refusal(here, pod(overhead={"cpu": "1"})) == (
        "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    )
    assert refusal(here, pod(runtimeClassName="kata", nodeSelector={"a": "c"})) == (
        "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c"
    )


def test_labels_that_terms_name_by_key_become_part_of_their_selectors(here: KubernetesWorkspace) -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["app", "none"], "mismatchLabelKeys": ["t"]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spread = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["app"]}
    body = {
        **pod(affinity=affinity, topologySpreadConstraints=[spread]),
        "metadata": {"labels": {"app": "a", "t": "1"}},
    }
    spec = here.create("pods", "web", body)["spec"]
    is_app = {"key": "app", "operator": "In", "values": ["a"]}
    (found,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    is_other = {"key": "t", "operator": "NotIn", "values": ["1"]}
    assert found["labelSelector"]["matchExpressions"] == [is_app, is_other]
    assert spec["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == [is_app]


def test_a_new_node_is_marked_as_not_ready(here: KubernetesWorkspace) -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    made = here.create("nodes", "a", {}, namespace="")
    assert made["spec"]["taints"] == [taint]
    assert here.update(here.key("nodes", "a", namespace=""), {"spec": {}})["spec"] == {}


# --- first status


def test_a_new_pod_is_pending_with_its_quality_of_service(here: KubernetesWorkspace) -> None:
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    made = here.create("pods", "web", pod({"name": "a", "resources": resources}))
    assert made["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}
    gated = here.create("pods", "gated", pod(schedulingGates=[{"name": "a"}]))["status"]["conditions"]
    assert [(each["type"], each["status"], each["reason"]) for each in gated] == [
        ("PodScheduled", "False", "SchedulingGated")
    ]


def test_the_time_of_a_volumes_phase_follows_the_phase(here: KubernetesWorkspace) -> None:
    made = here.create("persistentvolumes", "disk", {"spec": {}}, namespace="")
    assert made["status"] == {"phase": "Pending", "lastPhaseTransitionTime": NOW}
    key, old = here.key("persistentvolumes", "disk", namespace=""), "2020-01-01T00:00:00Z"
    here.add(key, {**made, "status": {"phase": "Pending", "lastPhaseTransitionTime": old}})
    kept = here.update(key, {"spec": {}, "status": {"phase": "Pending"}}, "status")
    assert kept["status"]["lastPhaseTransitionTime"] == old
    bound = here.update(key, {"spec": {}, "status": {"phase": "Bound", "lastPhaseTransitionTime": old}}, "status")
    assert bound["status"]["lastPhaseTransitionTime"] == NOW


def test_a_daemon_sets_templates_are_counted_in_an_annotation(here: KubernetesWorkspace) -> None:
    name, key = "deprecated.daemonset.template.generation", here.key("daemonsets", "a", group="apps")
    made = here.create("daemonsets", "a", {"spec": {"template": {"a": 1}}}, group="apps")
    assert made["metadata"]["annotations"] == {name: "1"}
    assert here.update(key, made)["metadata"]["annotations"] == {name: "1"}
    changed = {"metadata": {**made["metadata"], "annotations": {name: "9"}}, "spec": {"template": {"a": 2}}}
    assert here.update(key, changed)["metadata"]["annotations"] == {name: "2"}
