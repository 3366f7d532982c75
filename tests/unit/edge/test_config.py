"""Settings of the controllers of the edge service."""

from __future__ import annotations

import pytest

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
        frozenset({("root", "kubernetes")}),
    )
    assert EdgeControllersConfig().built_ins == BuiltIns()


def test_a_resource_of_mailboxes_may_name_its_export_and_half_a_name_is_refused() -> None:
    found = EdgeControllersConfig(mailbox_resources=("gauges.x.example.com@root:x:metering",)).built_ins
    assert found.mailbox_resources == frozenset({"gauges.x.example.com"})
    assert found.mailbox_exports == frozenset({("root:x", "metering")})
    for text in ("gauges.x.example.com@metering", "@root:x:metering", "gauges.x.example.com@"):
        with pytest.raises(ValueError, match=r"plural\.group@workspace:export"):
            EdgeControllersConfig(mailbox_resources=(text,))
