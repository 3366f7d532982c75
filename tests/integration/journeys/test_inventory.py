"""Inventories, mailboxes and the registration of clusters, as they are typed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.clients.api import eventually
from harness.clients.kubectl import Kubectl
from integration.journeys.fleet import INVENTORY, WAIT_S, Clusters, Side

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TARGETS, LOCATIONS = "synctargets.edge.kubestellar.io", "locations.edge.kubestellar.io"
NOTE = r"metadata.annotations.edge\.kubestellar\.io/sync-target-name"
#: Name, logical cluster and phase by the name of a SyncTarget.
Mailboxes = dict[str, tuple[str, str, str]]


@pytest.fixture
def inventory(in_center: Callable[[str], Side]) -> Iterator[Side]:
    """The workspace for inventories. What the tests made there is gone afterwards."""
    here = in_center("root:imw1")
    yield here
    for name in ("franc", "lira", "stest1"):
        here.ok("kubestellar", "remove", "location", name)


def mailboxes(home: Side) -> Mailboxes:
    """The mailboxes, as columns of kubectl show them."""
    columns = f"custom-columns=A:.{NOTE},B:.metadata.name,C:.spec.cluster,D:.status.phase"
    rows = [each.split() for each in home.ok("get", "workspaces", "--no-headers", "-o", columns).splitlines()]
    return {target: (name, cluster, phase) for target, name, cluster, phase in rows if target != "<none>"}


def ready(home: Side, *targets: str) -> Mailboxes:
    """Wait until each of these SyncTargets has a mailbox; return them."""

    def found() -> bool:
        each = mailboxes(home)
        return all(each.get(target, ("", "", ""))[2] == "Ready" for target in targets)

    eventually(found, f"mailboxes of {targets}", WAIT_S)
    return {target: row for target, row in mailboxes(home).items() if target in targets}


def test_an_inventory_has_a_mailbox_for_each_of_its_targets(inventory: Side, in_center: Callable[[str], Side]) -> None:
    home = in_center("root:espw")
    tree = in_center("root").ok("ws", "tree")
    assert all(name in tree for name in ("espw", "imw1", "wmw1"))
    inventory.ok("kubestellar", "ensure", "location", "franc", "loc-name=franc", "env=prod")
    inventory.ok("kubestellar", "ensure", "location", "lira", "loc-name=lira", "env=prod", "extended=yes")
    assert inventory.ok("kubestellar", "ensure", "location", "lira", "loc-name=lira", "extended=yes") == ""
    labels = inventory.get(TARGETS, "lira")["metadata"]["labels"]
    assert labels == {"id": "lira", "loc-name": "lira", "env": "prod", "extended": "yes"}
    assert "id" not in inventory.get(LOCATIONS, "lira")["metadata"]["labels"]
    described = inventory.ok("describe", LOCATIONS, "franc")
    assert "Instance Selector:" in described
    assert "synctargets" in described
    first = ready(home, "franc", "lira")
    assert all("-mb-" in name for name, _, _ in first.values())
    for name, _, _ in first.values():
        inside = in_center(f"root:espw:{name}")
        assert "syncerconfig.edge.kubestellar.io/the-one" in inside.names("syncerconfigs")
        exports = "jsonpath={.items[?(@.status.phase=='Bound')].spec.reference.export.name}"
        assert "edge.kubestellar.io" in inside.ok("get", "apibindings", "-o", exports).split()
    # One that is deleted by hand comes back under its name.
    name, cluster, _ = first["franc"]
    home.ok("delete", "workspace", name)
    eventually(lambda: mailboxes(home).get("franc", ("", cluster, ""))[1] not in {cluster, "<none>"}, "it is back")
    assert ready(home, "franc")["franc"][0] == name
    assert in_center(f"root:espw:{name}").names("syncerconfig/the-one")
    # A target of another make has one too, while it is there; made again it has another.
    target = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "SyncTarget", "metadata": {"name": "stest1"}}
    inventory.apply({**target, "spec": {"cells": {"foo": "bar"}}})
    before = ready(home, "stest1")["stest1"][0]
    inventory.ok("delete", TARGETS, "stest1")
    home.lost("workspace", before)
    inventory.apply(target)
    assert ready(home, "stest1")["stest1"][0] != before
    assert ready(home, "lira") == {"lira": first["lira"]}


def test_a_registered_cluster_runs_the_syncer_of_its_manifest_and_mistakes_are_told(
    inventory: Side, in_center: Callable[[str], Side], clusters: Clusters, tmp_path: Path
) -> None:
    root, file = in_center("root:wmw1"), tmp_path / "lira-syncer.yaml"
    edge = Side(Kubectl(tmp_path, clusters.named("florin")[0].kubeconfig))
    unknown = root.kubectl.run("kubestellar", "prep-for-syncer", *INVENTORY, "lira", "-o", str(file))
    assert (unknown.code, 'there is no SyncTarget "lira"' in unknown.stderr) == (1, True)
    inventory.ok("kubestellar", "ensure", "location", "lira", "env=prod")
    elsewhere = root.kubectl.run("kubestellar", "prep-for-syncer", *INVENTORY, "--espw", "root:wmw1", "lira")
    assert elsewhere.code == 2
    said = root.kubectl.run("kubestellar", "prep-for-syncer", *INVENTORY, "lira", "-o", str(file))
    assert said.code == 0
    for text in ('Creating service account "syncer"', f"Wrote workload execution cluster manifest to {file}"):
        assert text in said.stderr
    assert root.ok("ws", ".").startswith('Current workspace is "root:wmw1"')
    made = edge.ok("apply", "-f", str(file)).splitlines()
    assert len(made) == 7
    assert all(each.endswith(" created") for each in made)
    name = made[0].partition("/")[2].partition(" ")[0]
    edge.has(f"deployment/{name}", "-n", name, state="jsonpath={.status.readyReplicas}=1")
    inventory.has(f"{TARGETS}/lira", state="condition=HeartbeatHealthy")
    # Run again it renews the token, and nothing else.
    root.ok("kubestellar", "prep-for-syncer", *INVENTORY, "lira", "-o", str(file))
    again = edge.ok("apply", "-f", str(file)).splitlines()
    changed = [each for each in again if not each.endswith(" unchanged")]
    assert changed == [f"secret/{name} configured"]
    # The Secret with the token goes with its account, too.
    edge.ok("delete", "--ignore-not-found", "-f", str(file), timeout_s=WAIT_S)
