"""Default classes of claims and Ingresses, and claims that grow."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.meta.status import Forbidden
from atoll.shard.admission.kubernetes.default_classes import DefaultClasses, GrowingClaims
from harness.models.kubernetes_workspace import KubernetesWorkspace

Object = dict[str, Any]
CLAIMS, STORAGE, NETWORKING = "persistentvolumeclaims", "storage.k8s.io", "networking.k8s.io"


@pytest.fixture
def here() -> KubernetesWorkspace:
    return KubernetesWorkspace([DefaultClasses(), GrowingClaims()])


def storage_class(here: KubernetesWorkspace, name: str, created: str = "", **fields: Any) -> None:
    metadata = {"creationTimestamp": created}
    if created:
        metadata["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}  # type: ignore[assignment]
    here.add(here.key("storageclasses", name, group=STORAGE, namespace=""), {"metadata": metadata, **fields})


def claim(storage: str = "1Gi", **spec: Any) -> Object:
    return {"spec": {"resources": {"requests": {"storage": storage}}, **spec}}


def test_a_claim_without_a_class_gets_the_newest_default(here: KubernetesWorkspace) -> None:
    assert "storageClassName" not in here.create(CLAIMS, "none", claim())["spec"]
    storage_class(here, "old", "2025-01-01T00:00:00Z")
    storage_class(here, "new", "2026-01-01T00:00:00Z")
    storage_class(here, "plain")
    assert here.create(CLAIMS, "a", claim())["spec"]["storageClassName"] == "new"
    assert here.create(CLAIMS, "b", claim(storageClassName=""))["spec"]["storageClassName"] == ""
    old = {**claim(), "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "plain"}}}
    assert "storageClassName" not in here.create(CLAIMS, "c", old)["spec"]


def test_an_ingress_without_a_class_gets_the_default(here: KubernetesWorkspace) -> None:
    metadata = {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}
    here.add(here.key("ingressclasses", "edge", group=NETWORKING, namespace=""), {"metadata": metadata})
    made = here.create("ingresses", "web", {"spec": {}}, group=NETWORKING)
    assert made["spec"] == {"ingressClassName": "edge"}
    old = {"spec": {}, "metadata": {"annotations": {"kubernetes.io/ingress.class": "other"}}}
    assert here.create("ingresses", "old", old, group=NETWORKING)["spec"] == {}


def test_a_claim_grows_when_it_is_bound_and_its_class_allows_it(here: KubernetesWorkspace) -> None:
    storage_class(here, "fixed")
    storage_class(here, "elastic", allowVolumeExpansion=True)
    key = here.key(CLAIMS, "data")
    here.create(CLAIMS, "data", claim(storageClassName="fixed"))
    with pytest.raises(Forbidden, match="Only bound persistent volume claims can be expanded"):
        here.update(key, claim("2Gi", storageClassName="fixed"))
    for name, allowed in (("fixed", False), ("elastic", True)):
        here.add(key, {**claim(storageClassName=name), "status": {"phase": "Bound"}})
        if allowed:
            here.update(key, claim("2Gi", storageClassName=name))
            continue
        with pytest.raises(Forbidden, match="the storageclass that provisions the pvc must support resize"):
            here.update(key, claim("2Gi", storageClassName=name))
