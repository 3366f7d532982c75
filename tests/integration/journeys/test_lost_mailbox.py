"""A mailbox that is deleted by hand takes the account of its cluster along, which goes on and is registered anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.clients.api import eventually
from integration.journeys.fleet import WAIT_S, Edge, Side, configmap, namespace, placement

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_a_credential_that_is_lost_with_its_mailbox_leaves_the_edge_running_and_is_replaced_by_one_command(
    edge: Edge, workspace: Callable[[str], Side], in_center: Callable[[str], Side]
) -> None:
    where, here, home = "lost", workspace("lost"), in_center("root:espw")
    edge.label("lost=yes")
    here.apply(namespace(where), placement("p", {"lost": "yes"}, {"namespaces": [where]}))
    here.apply(configmap("kept", where, {"k": "1"}), configmap("gone", where, {"k": "1"}))
    for name in ("kept", "gone"):
        edge.has(f"configmap/{name}", "-n", where)
    before = edge.get("configmap/kept", "-n", where)["metadata"]["uid"]
    mailbox = edge.mailbox().rpartition(":")[2]
    cluster = home.get(f"workspace/{mailbox}")["spec"]["cluster"]
    home.ok("delete", "workspace", mailbox, timeout_s=WAIT_S)

    def is_another() -> bool:
        found = home.get("workspaces")["items"]
        (again,) = (each for each in found if each["metadata"]["name"] == mailbox) if mailbox in str(found) else ({},)
        return bool(again) and again["status"].get("phase") == "Ready" and again["spec"]["cluster"] != cluster

    eventually(is_another, "the mailbox is made again", WAIT_S)
    here.ok("delete", "configmap", "gone", "-n", where)
    here.ok("patch", "configmap", "kept", "-n", where, "--type=merge", "-p", '{"data":{"k":"2"}}')
    placed = "jsonpath={.status.conditions[?(@.type=='Projected')].status}=True"
    here.has("edgeplacement/p", state=placed)
    assert edge.names("configmap/gone", "-n", where), "what the edge has stays"
    assert edge.get("configmap/kept", "-n", where)["data"] == {"k": "1"}
    edge.register("fleet=all", "lost=yes")
    edge.has("configmap/kept", "-n", where, state="jsonpath={.data.k}=2")
    edge.lost("configmap/gone", "-n", where)
    assert edge.get("configmap/kept", "-n", where)["metadata"]["uid"] == before
