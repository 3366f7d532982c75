"""Alerts of the edge service: its controllers show what alerts and dashboards name, and what fails at them fires."""

from __future__ import annotations

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.clients.kubectl import Kubectl
from harness.clients.prometheus import Scrape, begun_to_fire, evaluate
from harness.servers.configured_nats import ConfiguredNats
from harness.servers.edge_service import EdgeControllers
from integration.edge.placed import (
    CONFIGMAPS,
    CONFIGMAPS_OF_ALL,
    PLACEMENTS,
    condition,
    inventory,
    is_projected,
    mailboxes,
    new_workload,
    place,
    workload,
)

__all__ = ["inventory", "mailboxes", "workload"]

pytestmark = pytest.mark.long

POLICIES = "/apis/admissionregistration.k8s.io/v1"
CONFIGMAPS_WRITTEN = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}


def refuse_configmaps(api: Api) -> None:
    """Have a policy of a workspace refuse ConfigMaps named `bad`."""
    validations = [{"expression": "object.metadata.name != 'bad'"}]
    spec = {"matchConstraints": {"resourceRules": [CONFIGMAPS_WRITTEN]}, "validations": validations}
    api.post(f"{POLICIES}/validatingadmissionpolicies", {"metadata": {"name": "no-bad"}, "spec": spec})
    binding = {"policyName": "no-bad", "validationActions": ["Deny"]}
    api.post(f"{POLICIES}/validatingadmissionpolicybindings", {"metadata": {"name": "no-bad"}, "spec": binding})


def test_mailboxes_that_refuse_copies_fire_and_every_metric_that_is_named_is_shown(
    workload: Api, mailboxes: dict[str, Api], controllers: EdgeControllers
) -> None:
    two = mailboxes["two"]
    refuse_configmaps(two)
    before = controllers.metrics()
    workload.post(CONFIGMAPS, configmap("bad", {"k": "1"}))
    place(workload, "some", {"env": "two"}, CONFIGMAPS_OF_ALL)
    eventually(lambda: condition(workload, "some").get("reason") == "ObjectsRefused", "it is refused")
    eventually(lambda: "\natoll_edge_mailboxes_incomplete 1.0" in controllers.metrics(), "it is counted")
    refused = controllers.metrics()
    found = evaluate([Scrape(0, "atoll", "edge", refused)], 60, dashboards=True)
    named = {each for each in found.wanted if each.startswith("atoll_edge_")}
    named -= {each for each in named if each.startswith("atoll_edge_roster_")}
    assert len(named) > 4
    assert named <= set(found.metrics)
    two.delete(f"{POLICIES}/validatingadmissionpolicybindings/no-bad")
    eventually(lambda: is_projected(workload, "some"), "it is tried again")
    eventually(lambda: "\natoll_edge_mailboxes_incomplete 0.0" in controllers.metrics(), "it is counted no more")
    assert begun_to_fire([before, refused]) == {"AtollMailboxesIncomplete": 1}
    assert begun_to_fire([before, controllers.metrics()]) == {}


def test_workspaces_that_do_not_agree_on_a_copy_fire_until_they_do(
    root: Api, workload: Api, mailboxes: dict[str, Api], controllers: EdgeControllers, kubectl: Kubectl
) -> None:
    line, other = "\natoll_edge_copies_in_conflict", new_workload(root)
    eventually(lambda: f"{line} 0.0" in controllers.metrics(), "there is no conflict")
    before = controllers.metrics()
    for api, value in ((workload, "1"), (other, "2")):
        api.post(CONFIGMAPS, configmap("shared", {"k": value}))
        place(api, "shared", {"env": "two"}, {**CONFIGMAPS_OF_ALL, "objectNames": ["shared"]})
    eventually(lambda: f"{line} 1.0" in controllers.metrics(), "they do not agree")
    apart = controllers.metrics()
    for api in (workload, other):
        eventually(lambda: condition(api, "shared", "Conflicting"), "the condition")  # noqa: B023
        kubectl.ok("ws", f":{api.cluster}")
        row = kubectl.ok("atoll", "edge").splitlines()[1].split()
        assert row[7:10] == ["1", "0", "Conflicting:"]
    other.patch(f"{CONFIGMAPS}/shared", {"data": {"k": "1"}})
    eventually(lambda: f"{line} 0.0" in controllers.metrics(), "they agree")
    other.delete(PLACEMENTS)
    other.close()
    assert begun_to_fire([before, apart]) == {"AtollWorkloadConflicts": 1}
    assert begun_to_fire([before, controllers.metrics()]) == {}


def test_controllers_that_read_no_changes_fire(nats: ConfiguredNats, controllers: EdgeControllers) -> None:
    read = '\natoll_edge_changes_connected{shard="root"} '
    eventually(lambda: f"{read}1.0" in controllers.metrics(), "changes are read")
    before = controllers.metrics()
    nats.stop()
    try:
        eventually(lambda: f"{read}0.0" in controllers.metrics(), "it is shown")
        cut = controllers.metrics()
    finally:
        nats.start()
    eventually(lambda: f"{read}1.0" in controllers.metrics(), "changes are read again")
    eventually(lambda: "[+]changes ok" in controllers.get("/readyz?verbose")[1], "its health says so")
    assert begun_to_fire([before, cut]) == {"AtollEdgeChangesCut": 1}
    assert begun_to_fire([before, controllers.metrics()]) == {}
