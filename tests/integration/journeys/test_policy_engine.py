"""A policy engine on two clusters, as its authors ship it, and a team that reads the reports of both."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from atoll.machinery.meta.objects import Object, annotations_of
from harness.clients.api import eventually
from harness.clients.syncing_objects import watching
from harness.data.manifests import documents, policy_engine
from harness.servers.shard_process import ShardProcess
from integration.journeys.fleet import WAIT_S, Edge, Side, placement

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

WHERE, REPORTS = "kyverno", "wgpolicyk8s.io"
VERSION = "v1alpha2"
OF_REPORTS = ("--api-group", REPORTS, "--api-kind", "PolicyReport", "--api-version", VERSION)
#: Of the real thing, which has 65 objects of ten kinds.
MOST_KINDS, LEAST_OBJECTS = 10, 60


def report(name: str, failed: int) -> Object:
    """What the engine says of a namespace."""
    metadata = {"name": name, "namespace": WHERE}
    head = {"apiVersion": f"{REPORTS}/{VERSION}", "kind": "PolicyReport", "metadata": metadata}
    row = {"policy": "labels", "result": "fail", "message": "no owner"}
    return {**head, "results": [row] * failed, "summary": {"fail": failed}}


def everything() -> Object:
    """A placement of all that the manifest has, which brings reports up."""
    tests: list[Object] = [
        {"namespaces": [WHERE]},
        {"apiGroup": "", "resources": ["namespaces"], "objectNames": [WHERE]},
        {"apiGroup": "apiextensions.k8s.io", "resources": ["customresourcedefinitions"]},
        {"apiGroup": "rbac.authorization.k8s.io", "resources": ["clusterroles", "clusterrolebindings"]},
    ]
    sets = {"apiGroup": REPORTS, "resources": ["policyreports"], "namespaces": ["*"], "names": ["*"]}
    return placement("engine", {"policies": "yes"}, *tests, upsync=[sets])


def lacks(edge: Edge, wanted: dict[str, set[str]]) -> dict[str, set[str]]:
    """What a cluster does not have of these names by kind."""
    found = {kind: {each.partition("/")[2] for each in edge.names(kind, "-A")} for kind in wanted}
    return {kind: names - found[kind] for kind, names in wanted.items() if names - found[kind]}


def has_everything(edge: Edge, wanted: dict[str, set[str]]) -> bool:
    return lacks(edge, wanted) == {}


def listed(edge: Edge) -> int:
    """How many objects the list of a mailbox has."""
    specs = [each["spec"] for each in edge.copies("syncerconfigs")["items"]]
    namespaced = [each for spec in specs for each in spec.get("namespacedObjects", ())]
    rows = [row["names"] for each in namespaced for row in each["objectsByNamespace"]]
    rows += [each["objects"] for spec in specs for each in spec.get("clusterScope", ())]
    return sum(map(len, rows))


def test_a_policy_engine_runs_on_two_clusters_and_a_team_reads_the_reports_of_both(
    register: Callable[..., list[Edge]], workspace: Callable[[str], Side], center: ShardProcess, tmp_path: Path
) -> None:
    file = policy_engine()
    wanted: dict[str, set[str]] = defaultdict(set)
    for document in documents(file):
        wanted[document["kind"].lower()].add(document["metadata"]["name"])
    assert sum(map(len, wanted.values())) >= LEAST_OBJECTS
    assert len(wanted) == MOST_KINDS
    edges = register("florin", "guilder")
    for each in edges:
        each.label("policies=yes")
    here = workspace("policies")
    # Its accounts and roles are data there.
    here.ok("kubestellar", "view")
    here.apply(everything())
    here.ok("apply", "--server-side", "-f", str(file), timeout_s=WAIT_S)
    here.ok("kubestellar", "view", "--off")
    for each in edges:
        eventually(partial(has_everything, each, wanted), f"all of it at {each.name}", WAIT_S)
        assert listed(each) >= LEAST_OBJECTS
        flags = ("--all", "-n", WHERE, f"--timeout={WAIT_S:.0f}s")
        each.ok("wait", "--for=condition=Available", "deployments", *flags, timeout_s=WAIT_S + 20)
    here.has("edgeplacement/engine", state="jsonpath={.status.destinations.upToDate}=2")
    # The engines report, and somebody reads what they report, as it changes.
    boxes = {each.name: annotations_of(each.copies("syncerconfig", "the-one"))["kcp.io/cluster"] for each in edges}
    with watching(center.kubeconfig, tmp_path, *OF_REPORTS) as lines:
        for number, each in enumerate(edges):
            each.apply(report("labels", number + 1))

        def counted(action: str) -> Counter[str]:
            found = [line for line in lines.of("labels") if line["Action"] == action]
            return Counter(line["metadata"]["annotations"]["kcp.io/cluster"] for line in found)

        both = dict.fromkeys(boxes.values(), 1)
        eventually(lambda: counted("add") == both, "a line for each mailbox", WAIT_S)
        edges[0].apply(report("labels", 7))
        changed = boxes[edges[0].name]
        eventually(lambda: counted("update")[changed] >= 1, "its change", WAIT_S)
        assert lines.of("labels")[-1]["summary"] == {"fail": 7}
        for each in edges:
            each.ok("delete", "policyreport", "labels", "-n", WHERE)
        eventually(lambda: counted("delete") == both, "they are gone", WAIT_S)
        assert counted("add") == both, "none is added twice"
    here.ok("delete", "edgeplacement", "engine", timeout_s=WAIT_S)
    for each in edges:
        each.lost("deployments,services", "-n", WHERE)
        each.lost(f"policyreports.{REPORTS}", "-A")
