"""LimitRanges: defaults of new Pods, bounds of Pods and claims, with kube-apiserver's texts."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.meta.status import Forbidden
from atoll.shard.admission.kubernetes.limit_ranges import LimitRanges
from harness.models.kubernetes_workspace import KubernetesWorkspace

Object = dict[str, Any]


@pytest.fixture
def here() -> KubernetesWorkspace:
    return KubernetesWorkspace([LimitRanges()])


def limit(here: KubernetesWorkspace, kind: str = "Container", namespace: str = "default", **amounts: Object) -> None:
    key = here.key("limitranges", "limits", namespace=namespace)
    here.add(key, {"spec": {"limits": [{"type": kind, **amounts}]}})


def container(name: str = "a", requests: Object | None = None, limits: Object | None = None, **more: Any) -> Object:
    resources = {name: value for name, value in (("requests", requests), ("limits", limits)) if value}
    return {"name": name, "image": "a", **({"resources": resources} if resources else {}), **more}


def pod(*containers: Object, **spec: Any) -> Object:
    return {"spec": {"containers": list(containers) or [container()], **spec}}


def claim(storage: str) -> Object:
    return {"spec": {"resources": {"requests": {"storage": storage}}}}


def test_a_new_pod_gets_what_its_containers_do_not_say(here: KubernetesWorkspace) -> None:
    limit(here, default={"cpu": "1", "memory": "1Gi"}, defaultRequest={"cpu": "100m"})
    made = here.create("pods", "web", pod(container(requests={"cpu": "5m"}), initContainers=[container("b")]))
    first, start = made["spec"]["containers"][0]["resources"], made["spec"]["initContainers"][0]["resources"]
    assert first == {"requests": {"cpu": "5m"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    assert start == {"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    assert made["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory limit for container a; "
        "cpu request for init container b; cpu, memory limit for init container b"
    }


def test_limits_of_another_namespace_do_not_count(here: KubernetesWorkspace) -> None:
    limit(here, namespace="elsewhere", default={"cpu": "1"}, max={"cpu": "1"})
    assert "resources" not in here.create("pods", "web", pod())["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("bounds", "body", "said"),
    [
        ({"min": {"cpu": "100m"}}, container(), "minimum cpu usage per Container is 100m.  No request is specified"),
        (
            {"min": {"cpu": "100m"}},
            container(requests={"cpu": "0.05"}),
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            {"min": {"memory": "1Gi"}},
            container(requests={"memory": "1Gi"}, limits={"memory": "1Mi"}),
            "minimum memory usage per Container is 1Gi, but limit is 1Mi",
        ),
        ({"max": {"cpu": "1"}}, container(), "maximum cpu usage per Container is 1.  No limit is specified"),
        ({"max": {"cpu": "1"}}, container(limits={"cpu": "2"}), "maximum cpu usage per Container is 1, but limit is 2"),
        (
            {"max": {"cpu": "1"}},
            container(requests={"cpu": "1500m"}, limits={"cpu": "1"}),
            "maximum cpu usage per Container is 1, but request is 1500m",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            container(requests={"cpu": "1"}, limits={"cpu": "2500m"}),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            container(requests={"cpu": "1"}),
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            container(limits={"cpu": "1"}),
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
    ],
)
def test_a_container_out_of_bounds_is_refused(
    here: KubernetesWorkspace, bounds: Object, body: Object, said: str
) -> None:
    limit(here, **bounds)
    with pytest.raises(Forbidden) as refused:
        here.create("pods", "web", pod(body))
    assert refused.value.message == f'pods "web" is forbidden: {said}'


def test_what_two_containers_violate_is_said_together_and_once(here: KubernetesWorkspace) -> None:
    limit(here, max={"cpu": "1", "memory": "1Gi"})
    with pytest.raises(Forbidden) as refused:
        here.create("pods", "web", pod(container("a"), container("b")))
    assert refused.value.message == (
        'pods "web" is forbidden: [maximum cpu usage per Container is 1.  No limit is specified, '
        "maximum memory usage per Container is 1Gi.  No limit is specified]"
    )


def test_the_sum_of_a_pod_counts_sidecars_and_the_largest_init_container(here: KubernetesWorkspace) -> None:
    limit(here, "Pod", max={"cpu": "3"})
    sidecar = container("s", limits={"cpu": "1"}, restartPolicy="Always")
    here.create("pods", "a", pod(container(limits={"cpu": "2"}), initContainers=[sidecar]))
    with pytest.raises(Forbidden, match="maximum cpu usage per Pod is 3, but limit is 3500m"):
        here.create("pods", "b", pod(initContainers=[sidecar, container("i", limits={"cpu": "2500m"})]))
    said = {"limits": {"cpu": "4"}}
    with pytest.raises(Forbidden, match="maximum cpu usage per Pod is 3, but limit is 4"):
        here.create("pods", "c", pod(container(limits={"cpu": "2"}), resources=said))


def test_a_pod_is_checked_when_it_is_resized_and_at_no_other_change(here: KubernetesWorkspace) -> None:
    made = here.create("pods", "web", pod(container(limits={"cpu": "2"})))
    limit(here, max={"cpu": "1"})
    key = here.key("pods", "web")
    here.update(key, made)
    with pytest.raises(Forbidden, match="maximum cpu usage"):
        here.update(key, made, "resize")
    here.update(key, pod(container(limits={"cpu": "1"})), "resize")


def test_claims_are_held_to_their_bounds_when_they_grow_too(here: KubernetesWorkspace) -> None:
    limit(here, "PersistentVolumeClaim", min={"storage": "1Gi"}, max={"storage": "2Gi"})
    name, key = "persistentvolumeclaims", here.key("persistentvolumeclaims", "data")
    with pytest.raises(Forbidden, match="minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"):
        here.create(name, "data", claim("1Mi"))
    here.create(name, "data", claim("2Gi"))
    with pytest.raises(Forbidden, match="maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"):
        here.update(key, claim("3Gi"))


def test_an_object_under_deletion_is_free(here: KubernetesWorkspace) -> None:
    made = here.create("persistentvolumeclaims", "data", claim("1Gi"))
    key = here.key("persistentvolumeclaims", "data")
    here.add(key, {**made, "metadata": {**made["metadata"], "deletionTimestamp": "2026-11-26T12:00:00Z"}})
    limit(here, "PersistentVolumeClaim", max={"storage": "1Mi"})
    here.update(key, claim("1Gi"))
