"""Defaults of Kubernetes' kinds: those of the schema, and those that depend on other fields."""

from __future__ import annotations

import base64
import copy
import json
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from atoll.machinery.kinds import protobuf
from atoll.machinery.kinds.kubernetes.autoscaling import V1, V2, convert
from atoll.machinery.kinds.kubernetes.conditional_defaults import set_conditional_defaults
from atoll.machinery.kinds.kubernetes.schemas import KubernetesSchema
from atoll.machinery.kinds.kubernetes.tables import components, rows
from atoll.machinery.kinds.kubernetes.zero_values import OMITTED
from atoll.machinery.kinds.native_schemas import definitions, drop_nulls
from atoll.machinery.kinds.protobuf_encoder import encode
from atoll.machinery.kinds.protobuf_table import has_rows, merging_rows
from contract.kinds.draw_autoscalers import PREFIX, annotated, autoscaler
from contract.kinds.draw_kubernetes import drawn
from contract.kinds.validation.cases import plant, required_paths
from harness.clients.go_programs import BUILD_TIMEOUT_S, program
from harness.data.manifests import documents

Object = dict[str, Any]

DRAWN, AUTOSCALERS, TIMEOUT_S = 602, 300, 120.0
LEFT_OUT = 0.4


@cache
def schema_of(component: str) -> KubernetesSchema:
    return KubernetesSchema(component)


def defaulted(component: str, obj: Object) -> Object:
    """A copy with all defaults."""
    made = copy.deepcopy(obj)
    schema_of(component).normalize(made)
    return made


def partly_drawn(number: int) -> tuple[str, Object]:
    """A drawn object in which some of what its published schema requires is null, or is left out."""
    rng = Random(number)
    component, obj = drawn(number)
    for path in sorted(required_paths(components()[component], obj), reverse=True):
        if rng.random() < LEFT_OUT:
            plant(obj, path, None, is_written=rng.random() < LEFT_OUT)
    return component, obj


def pod(**spec: Any) -> Object:
    return defaulted("io.k8s.api.core.v1.Pod", {"metadata": {}, "spec": spec})["spec"]  # type: ignore[no-any-return]


def service(**spec: Any) -> Object:
    return defaulted("io.k8s.api.core.v1.Service", {"metadata": {}, "spec": spec})["spec"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("host.example:5000/a/b", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("nginx@sha256:" + "0" * 64, "IfNotPresent"),
        ("nginx:latest@sha256:" + "0" * 64, "Always"),
        ("Upper", "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_an_image_is_pulled_again_if_its_tag_is_latest(image: str, policy: str) -> None:
    spec = pod(containers=[{"name": "a", "image": image}], initContainers=[{"name": "b", "image": image}])
    assert spec["containers"][0]["imagePullPolicy"] == spec["initContainers"][0]["imagePullPolicy"] == policy
    kept = pod(containers=[{"name": "a", "image": image, "imagePullPolicy": "Never"}])
    assert kept["containers"][0]["imagePullPolicy"] == "Never"


def test_requests_ports_and_volumes_of_a_pod_follow_from_its_other_fields() -> None:
    container = {
        "name": "a",
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
        "ports": [{"containerPort": 80}],
    }
    spec = pod(containers=[copy.deepcopy(container)], volumes=[{"name": "v"}], hostNetwork=True)
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert spec["enableServiceLinks"] is True
    assert "hostPort" not in pod(containers=[container])["containers"][0]["ports"][0]


def test_what_a_whole_pod_requests_follows_from_its_containers_and_its_limits() -> None:
    asked = {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"hugepages-2Mi": "4Mi"}}
    containers = [{"name": name, "resources": copy.deepcopy(asked)} for name in ("a", "b")]
    found = pod(containers=containers, resources={"limits": {"cpu": "2", "memory": "4Gi"}})["resources"]
    assert found == {
        "limits": {"cpu": "2", "memory": "4Gi", "hugepages-2Mi": "8Mi"},
        "requests": {"cpu": "500m", "memory": "2Gi", "hugepages-2Mi": "8Mi"},
    }
    alone = pod(containers=[{"name": "a"}], resources={"limits": {"memory": "1Mi"}, "requests": {"cpu": "1"}})
    assert alone["resources"] == {"limits": {"memory": "1Mi"}, "requests": {"cpu": "1", "memory": "1Mi"}}
    unlimited = {"requests": {"cpu": "1"}}
    assert pod(containers=[{"name": "a"}], resources=dict(unlimited))["resources"] == unlimited
    wrong = {"limits": {"cpu": "1"}, "requests": {}}
    assert pod(containers=[{"resources": {"limits": {"cpu": "x"}}}], resources=dict(wrong))["resources"] == wrong


def test_a_service_has_what_its_type_needs() -> None:
    assert service(ports=[{"port": 80}]) == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    }
    balanced = service(type="LoadBalancer", sessionAffinity="ClientIP")
    assert balanced["externalTrafficPolicy"] == "Cluster"
    assert balanced["allocateLoadBalancerNodePorts"] is True
    assert balanced["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    assert service(type="ExternalName") == {"type": "ExternalName", "sessionAffinity": "None"}


def test_strategies_jobs_and_scalers_have_their_numbers() -> None:
    spec: Object = {"selector": {}, "template": {}}
    deployment = defaulted("io.k8s.api.apps.v1.Deployment", {"spec": dict(spec)})["spec"]
    assert deployment["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    recreated = defaulted("io.k8s.api.apps.v1.Deployment", {"spec": {**spec, "strategy": {"type": "Recreate"}}})
    assert recreated["spec"]["strategy"] == {"type": "Recreate"}
    job = defaulted("io.k8s.api.batch.v1.Job", {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})
    assert (job["spec"]["completions"], job["spec"]["parallelism"], job["spec"]["backoffLimit"]) == (1, 1, 6)
    assert job["metadata"]["labels"] == {"a": "b"}
    indexed = defaulted(
        "io.k8s.api.batch.v1.Job", {"spec": {"template": {}, "parallelism": 2, "backoffLimitPerIndex": 1}}
    )
    assert "completions" not in indexed["spec"]
    assert indexed["spec"]["backoffLimit"] == 2**31 - 1
    # A CronJob's template gets them when its Job is created.
    template = defaulted("io.k8s.api.batch.v1.CronJob", {"spec": {"jobTemplate": {"spec": {"template": {}}}}})
    assert template["spec"]["jobTemplate"]["spec"].keys() == {"template"}
    scaler = {"spec": {"maxReplicas": 3, "behavior": {"scaleDown": {"policies": []}}}}
    found = defaulted("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler", scaler)["spec"]
    assert found["metrics"][0]["resource"]["target"]["averageUtilization"] == 80
    assert found["behavior"]["scaleDown"] == {"selectPolicy": "Max", "policies": []}
    assert found["behavior"]["scaleUp"]["stabilizationWindowSeconds"] == 0


def test_defaults_are_set_once_and_every_object_has_a_body_in_protobuf() -> None:
    for number in range(len(rows()) * 2):
        component, obj = drawn(number)
        made = defaulted(component, obj)
        assert defaulted(component, made) == made, number
        assert schema_of(component).unknown_fields(made) == [], number
        assert protobuf.decode(encode(made)) == made, number


def test_what_is_left_out_or_null_has_the_zero_value_of_go_and_nothing_is_required_by_the_schema() -> None:
    spec = pod(containers=[{"ports": [{"name": None}]}], tolerations=None)
    assert "tolerations" not in spec
    assert spec["containers"][0]["name"] == ""
    assert spec["containers"][0]["ports"] == [{"containerPort": 0, "protocol": "TCP"}]
    node = defaulted("io.k8s.api.storage.v1.CSINode", {"spec": {"drivers": None}})
    assert node["spec"] == {}
    status = {"conditions": [{"type": "A", "status": "True", "lastTransitionTime": None}]}
    condition = defaulted("io.k8s.api.core.v1.Service", {"status": status})["status"]["conditions"][0]
    assert condition == {"type": "A", "status": "True", "reason": "", "message": ""}
    for number in range(DRAWN):
        component, obj = partly_drawn(number)
        made = defaulted(component, obj)
        assert defaulted(component, made) == made, number
        errors = schema_of(component).validate(made)
        assert [error for error in errors if error.type == "FieldValueRequired"] == [], number


def test_zero_values_that_go_does_not_show_are_those_of_the_protobuf_table() -> None:
    # These two are pointers.
    found = {("io.k8s.api.networking.v1.HTTPIngressPath", "pathType")}
    found |= {("io.k8s.api.resource.v1.CapacityRequestPolicyRange", "min")}
    for component in components().keys() - definitions().keys():
        fields = merging_rows(component) if has_rows(component) else {}
        needed = [name for name in components()[component].get("required", ()) if name in fields]
        found |= {(component, name) for name in needed if fields[name].omitempty}
    assert found == OMITTED


@pytest.mark.parametrize("value", ["x", 7, [], [7], None, True])
def test_a_value_of_another_type_is_left_to_the_schema(value: Any) -> None:
    for name in rows():
        for version in rows()[name].versions:
            for obj in ({"spec": value}, {"spec": {"template": {"spec": {"containers": value}}}, "status": value}):
                set_conditional_defaults(version.component, copy.deepcopy(obj))


def answers_of_kubernetes(objs: Sequence[Object]) -> list[Object]:
    """What Kubernetes' code makes of each object."""
    done = subprocess.run(
        [str(program("defaults", "conformance"))],
        input="".join(json.dumps(obj) + "\n" for obj in objs),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.timeout(int(BUILD_TIMEOUT_S) + 300)
def test_kubernetes_own_code_converts_autoscalers_to_the_same_and_back() -> None:
    """Drawn ones, what they become in version 1, and such with annotations of a client."""
    objs = [autoscaler(number) for number in range(AUTOSCALERS)]
    becoming = [answer["converted"] for answer in answers_of_kubernetes(objs)]
    objs += [*becoming, *map(annotated, range(AUTOSCALERS))]
    for obj, answer in zip(objs, answers_of_kubernetes(objs), strict=True):
        version = obj["apiVersion"]
        made = defaulted(f"io.k8s.api.{version.replace('/', '.')}.HorizontalPodAutoscaler", obj)
        found = convert(made, V1 if version == V2 else V2)
        assert with_read_annotations(found) == with_read_annotations(answer["converted"]), obj


def with_read_annotations(obj: Object) -> Object:
    """An autoscaler with the values of its annotations: Go orders fields by their declaration, and shows nulls."""
    annotations = obj["metadata"].get("annotations", {})
    held = {key: json.loads(text) for key, text in annotations.items() if key.startswith(PREFIX)}
    found = {**obj, "metadata": {**obj["metadata"], "annotations": {**annotations, **held}}}
    drop_nulls(found)
    return found


@pytest.mark.long
@pytest.mark.timeout(int(BUILD_TIMEOUT_S) + 300)
def test_kubernetes_own_code_sets_the_same_defaults_and_writes_bodies_that_are_read(boutique: Path) -> None:
    """A real application and drawn objects; those that the schema refuses have no form to compare."""
    known = {}
    for row in rows().values():
        for version in row.versions:
            api_version = f"{row.group}/{version.name}" if row.group else version.name
            known[api_version, row.kind] = version.component
    cases = [*map(drawn, range(DRAWN)), *map(partly_drawn, range(DRAWN))]
    for obj in documents(boutique):
        if component := known.get((obj["apiVersion"], obj["kind"])):
            cases.append((component, obj))
    compared = 0
    for (component, obj), answer in zip(cases, answers_of_kubernetes([obj for _, obj in cases]), strict=True):
        ours, theirs = defaulted(component, obj), answer["object"]
        drop_nulls(theirs)
        assert protobuf.decode(base64.b64decode(answer["protobuf"])) == theirs, component
        # Kubernetes does not look for duplicate keys in its own kinds.
        if all(error.type == "FieldValueDuplicate" for error in schema_of(component).validate(ours)):
            assert ours == theirs, component
            compared += 1
    assert compared > len(cases) * 0.95
