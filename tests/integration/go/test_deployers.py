"""Deployment tools as libraries: Helm 3, Helm 4, Flux's engine (tests/go, cmd/helm3, cmd/helm4, cmd/flux), and Argo
CD's (the module tests/go/gitops).

The chart is small: native kinds, a hook, one CRD and one object of it. Argo CD's engine compiles all of Kubernetes, in
a minute and a half.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clients.go_programs import BUILD_TIMEOUT_S, RUN_TIMEOUT_S, verified

pytestmark = pytest.mark.timeout(int(BUILD_TIMEOUT_S + RUN_TIMEOUT_S))

HELM = {"dry run", "install", "upgrade", "history", "roll back", "uninstall"}
GATEWAYS = [
    *(
        f"gateway.networking.k8s.io_{plural}.yaml"
        for plural in ("gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants", "vap_safeupgrades")
    ),
    "examples/simple-gateway/gateway.yaml",
    "examples/basic-http.yaml",
]


@pytest.fixture
def gateways(manifests: Path) -> list[Path]:
    """Files of the Gateway API: definitions, its admission policy, a Gateway and a route."""
    return [manifests / "gateway-api" / name for name in GATEWAYS]


@pytest.mark.parametrize("version", ["helm3", "helm4"])
def test_a_chart_is_installed_upgraded_rolled_back_and_uninstalled(workspace: Path, version: str) -> None:
    found = verified(version, workspace)
    assert found.keys() == HELM
    # Helm 3 patches the object that it read, Helm 4 uses server-side apply.
    assert found["install"] == [f"{version} {'Apply' if version == 'helm4' else 'Update'}"]


def test_flux_applies_the_gateway_api_in_stages_and_takes_it_away(workspace: Path, gateways: list[Path]) -> None:
    found = verified("flux", workspace, *gateways)
    assert found.keys() == {"apply", "wait", "apply again", "diff", "drift", "delete"}


def test_argo_cd_synchronises_the_gateway_api_and_prunes_it(workspace: Path, gateways: list[Path]) -> None:
    found = verified("gitops", workspace, *gateways, module="gitops")
    assert found.keys() == {"cache", "definitions", "sync", "sync again", "prune"}
