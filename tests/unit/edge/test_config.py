"""Settings of the controllers of the edge service."""

from __future__ import annotations

from atoll.edge.config import EdgeControllersConfig
from atoll.machinery.edge.categories import BuiltIns
from atoll.machinery.process import config as settings


def test_what_clusters_and_mailboxes_have_anyway_is_named_by_flags() -> None:
    flags = ("--edge-resources", "ingresses.networking.k8s.io,pods", "--edge-namespaces", "default,kube-system")
    found, _ = settings.load(EdgeControllersConfig, [*flags, "--mailbox-resources", "jobs.batch"], {}, "test")
    assert found.built_ins == BuiltIns(
        frozenset({"ingresses.networking.k8s.io", "pods"}),
        frozenset({"default", "kube-system"}),
        frozenset({"jobs.batch"}),
    )
    assert EdgeControllersConfig().built_ins == BuiltIns()
