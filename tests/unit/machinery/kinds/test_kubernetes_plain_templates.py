"""Specs of workloads that are taken without the checks of single fields: no check finds anything wrong with them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from atoll.machinery.kinds.kubernetes.validation import validators
from atoll.machinery.kinds.kubernetes.validation.plain_templates import is_plain_template, is_plain_workload
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.time_slicing import run_sliced
from harness.seeds import drawn, seed_of_run

_PROBE = {"httpGet": {"path": "/", "port": "http", "scheme": "HTTP", "httpHeaders": [{"name": "A", "value": "b"}]}}
_NUMBERS = {"periodSeconds": 1, "timeoutSeconds": 1, "initialDelaySeconds": 0, "failureThreshold": 3}
_SECRET = {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}
_ITEMS = [{"key": "k", "path": "a/b", "mode": 420}]
_SECURITY = {"runAsUser": 1, "runAsGroup": 1, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_CONTAINER: Object = {
    "name": "main",
    "image": "web:1",
    "command": ["a"],
    "args": ["b"],
    "workingDir": "/",
    "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}, {"containerPort": 81}],
    "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": _SECRET}],
    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1.5Gi"}},
    "readinessProbe": {**_PROBE, **_NUMBERS, "successThreshold": 2},
    "livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 1},
    "startupProbe": {"tcpSocket": {"port": 80, "host": "h"}},
    "volumeMounts": [
        {"name": "v", "mountPath": "/v", "readOnly": True, "subPath": "a"},
        {"name": "w", "mountPath": "/w"},
    ],
    "imagePullPolicy": "Always",
    "terminationMessagePath": "/m",
    "terminationMessagePolicy": "File",
    "securityContext": {
        **_SECURITY,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}
_OTHER = {
    "name": "other",
    "image": "b",
    "env": [{"name": "C", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
    "livenessProbe": {"grpc": {"port": 9, "service": "s"}},
}
_SPEC: Object = {
    "replicas": 3,
    "minReadySeconds": 1,
    "revisionHistoryLimit": 10,
    "progressDeadlineSeconds": 600,
    "paused": False,
    "selector": {"matchLabels": {"app.kubernetes.io/name": "web"}},
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
    "template": {
        "metadata": {"labels": {"app.kubernetes.io/name": "web", "a": "b"}, "annotations": {"example.com/a": "b"}},
        "spec": {
            "containers": [_CONTAINER, _OTHER],
            "initContainers": [{"name": "first", "image": "c"}],
            "volumes": [
                {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                {"name": "w", "configMap": {"name": "c", "defaultMode": 420, "items": _ITEMS, "optional": False}},
                {"name": "x", "secret": {"secretName": "c", "items": _ITEMS}},
                {"name": "y", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
            ],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 5,
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "automountServiceAccountToken": False,
            "enableServiceLinks": True,
            "schedulerName": "default-scheduler",
            "priorityClassName": "p",
            "imagePullSecrets": [{"name": "s"}],
            "securityContext": {**_SECURITY, "fsGroup": 1, "fsGroupChangePolicy": "OnRootMismatch"},
        },
    },
}
_CHANGES = 1000
#: In place of each value of the spec in turn.
_VALUES: tuple[Any, ...] = (
    *("a--b", "", "-", "a.b", "A", "x" * 64, "x" * 300, "..", "/x", "a/../b", "a\n", "é", "\u0663", "a=b", "--", "0"),
    *("100m", "-1", "2Gi", "1e3", "0%", "101%", "10", "10%", "main", "http", "v", "/v", "HTTP", "Never", "Recreate"),
    *({"name": "B", "value": "b", "valueFrom": _SECRET}, {"container.seccomp.security.alpha.kubernetes.io/main": "x"}),
    *(0, -1, 1, 7, 512, 70_000, 2**31, 2**70, 1.5, True, None, [], {}, [""], [None], {"a": "b"}, {"a": {}}),
)


def _in_slices(check: Any, *args: Object) -> list[Any]:
    """Run a check where large objects are checked, which has no form."""

    async def run() -> list[Any]:
        return await run_sliced(lambda pause: list(check(*args)), 20.0, is_long=True)

    return asyncio.run(run())


def _changed(value: Any) -> Iterator[Any]:
    """Yield copies of a value with one part changed, removed or repeated."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield {key: item for key, item in value.items() if key != name}
            yield {**value, f"{name}Other": child}
            yield from ({**value, name: each} for each in _changed(child))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield [*value, copy.deepcopy(child)]
            yield from ([*value[:index], each, *value[index + 1 :]] for each in _changed(child))
    yield from _VALUES


def test_a_spec_of_what_most_workloads_have_is_taken() -> None:
    assert is_plain_workload(_SPEC)
    assert is_plain_template(_SPEC["template"])


def test_no_check_finds_anything_wrong_with_what_is_taken() -> None:
    """A run takes some of the changes, other ones each day."""
    check, every = validators("io.k8s.api.apps.v1.Deployment").create, _CHANGES // drawn(drawn(_CHANGES))
    changed = islice(_changed(_SPEC), seed_of_run(0) // 1000 % every, None, every)
    taken = [{"spec": each} for each in changed if isinstance(each, dict) and is_plain_workload(each)]
    assert len(taken) > 5
    assert _in_slices(lambda: [(each, found) for each in taken if (found := check(each))]) == []


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"])
def test_an_update_of_what_is_taken_is_refused_for_another_selector_alone(kind: str) -> None:
    update = validators(f"io.k8s.api.apps.v1.{kind}").update
    fields = ("selector", "template", "minReadySeconds")
    spec = {name: value for name, value in _SPEC.items() if name in fields}
    other = {**spec, "selector": {"matchLabels": {"a": "b"}}}
    assert update({"spec": spec}, {"spec": spec}) == []
    found = update({"spec": other}, {"spec": spec})
    assert [error.field for error in found] == (["spec"] if kind == "StatefulSet" else ["spec.selector"])
    assert found == _in_slices(update, {"spec": other}, {"spec": spec})
