"""Deployment tools as libraries: Helm 3, Helm 4, Flux's engine (tests/go, cmd/helm3, cmd/helm4, cmd/flux), and Argo
CD's (the module tests/go/gitops).

One chart is of native kinds, a hook, one CRD and one object of it; three are of Deployments, Services, autoscalers and
Kubernetes' other kinds. Argo CD's engine compiles all of Kubernetes, in a minute and a half.
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


@pytest.mark.long
@pytest.mark.parametrize("version", [pytest.param("helm3", marks=pytest.mark.long), "helm4"])
def test_charts_of_workloads_are_installed_upgraded_rolled_back_and_uninstalled(
    kubernetes_workspace: Path, version: str
) -> None:
    found = verified(version, kubernetes_workspace, "workloads")
    # The second revision of the shop has no autoscaler, that of the post another route.
    first, second = ({"courier": 11, "ledger": 9, "storefront": count} for count in (6, 5))
    assert found == {"install": first, "upgrade": second, "roll back": first, "uninstall": dict.fromkeys(first, 0)}


@pytest.mark.long
def test_flux_applies_an_application_corrects_its_drift_and_takes_it_away(
    kubernetes_workspace: Path, boutique: Path
) -> None:
    found = verified("flux", kubernetes_workspace, boutique)
    assert (found["apply"], found["apply again"], found["delete"]) == (
        {"created": 35},
        {"unchanged": 35},
        {"deleted": 35},
    )
    assert (found["diff"], found["drift"]) == (35, "Deployment/default/frontend")


@pytest.mark.long
def test_argo_cd_synchronises_an_application_and_prunes_it(kubernetes_workspace: Path, boutique: Path) -> None:
    found = verified("gitops", kubernetes_workspace, boutique, module="gitops")
    assert (found["sync"], found["sync again"], found["prune"]) == (
        {"Synced": 35},
        {"Synced": 35},
        {"objects": 35, "definitions": 0},
    )


@pytest.mark.long
def test_flux_applies_the_gateway_api_in_stages_and_takes_it_away(workspace: Path, gateways: list[Path]) -> None:
    found = verified("flux", workspace, *gateways)
    assert found.keys() == {"apply", "wait", "apply again", "diff", "drift", "delete"}


@pytest.mark.long
def test_argo_cd_synchronises_the_gateway_api_and_prunes_it(workspace: Path, gateways: list[Path]) -> None:
    found = verified("gitops", workspace, *gateways, module="gitops")
    assert found.keys() == {"cache", "definitions", "sync", "sync again", "prune"}
