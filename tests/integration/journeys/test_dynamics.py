"""What changes after a workload was placed: where it runs, and what its workspace is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from atoll.machinery.meta.objects import Object
from integration.journeys.fleet import Edge, Side, deployment, namespace, placement

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

AVAILABLE = "condition=Available"
COUNT = "jsonpath={{.metadata.annotations.kubestellar\\.io/executing-count}}={}"


def everything(where: str) -> list[Object]:
    """The tests that select a namespace's content."""
    return [{"namespaces": [where]}]


def test_workloads_follow_labels_and_each_workspace_has_its_own(
    fleet: list[Edge], workspace: Callable[[str], Side]
) -> None:
    one, two, _ = fleet
    one.label("stage=prod", "special=no")
    two.label("stage=prod", "special=yes")
    common, special = workspace("wmw-c"), workspace("wmw-s")
    common.apply(
        namespace("commonstuff"),
        deployment("commond", "commonstuff", "ReplicaSet"),
        placement("c", {"stage": "prod"}, *everything("commonstuff"), wantSingletonReportedState=True),
    )
    special.apply(
        namespace("specialstuff"),
        deployment("speciald", "specialstuff"),
        placement(
            "s", {"stage": "prod", "special": "yes"}, *everything("specialstuff"), wantSingletonReportedState=True
        ),
    )
    two.has("deployment/speciald", "-n", "specialstuff", state=AVAILABLE)
    for each in (one, two):
        each.has("replicaset/commond", "-n", "commonstuff", state="jsonpath={.status.availableReplicas}=1")
    assert one.names("namespace/specialstuff") == []
    # Reported: a count where there are two, the status where there is one.
    common.has("replicaset/commond", "-n", "commonstuff", state=COUNT.format(2))
    assert "readyReplicas" not in common.get("replicaset/commond", "-n", "commonstuff").get("status", {})
    special.has("deployment/speciald", "-n", "specialstuff", state="jsonpath={.status.readyReplicas}=1")
    special.has("deployment/speciald", "-n", "specialstuff", state=COUNT.format(1))
    one.label("special=yes")
    one.has("deployment/speciald", "-n", "specialstuff", state=AVAILABLE)
    special.has("deployment/speciald", "-n", "specialstuff", state=COUNT.format(2))
    one.label("stage=dev")
    one.lost("replicaset/commond", "-n", "commonstuff")
    one.lost("deployment/speciald", "-n", "specialstuff")
    common.has("replicaset/commond", "-n", "commonstuff", state="jsonpath={.status.readyReplicas}=1")
    one.label("stage=prod")
    one.has("replicaset/commond", "-n", "commonstuff")
    common.ok("delete", "edgeplacement", "c")
    for each in (one, two):
        each.lost("replicaset/commond", "-n", "commonstuff")
    common.lost("singleplacementslices")
    two.has("deployment/speciald", "-n", "specialstuff", state=AVAILABLE)
    special.ok("delete", "edgeplacement", "s")
    for each in (one, two):
        each.lost("deployment/speciald", "-n", "specialstuff")
