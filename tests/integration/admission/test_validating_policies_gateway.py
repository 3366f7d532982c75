"""The policy that the Gateway API ships with its definitions holds on the definitions themselves."""

from __future__ import annotations

from pathlib import Path

import yaml

from harness.clients.api import CRDS, Api, eventually
from harness.clients.policies import BINDINGS, POLICIES, denial

GATEWAYS = "gateways.gateway.networking.k8s.io"
NAME = "safe-upgrades.gateway.networking.k8s.io"
PREFIX = "Uninstall ValidatingAdmissionPolicy safe-upgrades.gateway.networking.k8s.io to install"
OLD = f"Installing CRDs with version before v1.5.0 is prohibited by default. {PREFIX} older versions."
EXPERIMENTAL = (
    "Installing experimental CRDs on top of standard channel CRDs is prohibited by default. "
    f"{PREFIX} experimental CRDs on top of standard channel CRDs."
)


def test_the_gateway_api_is_neither_downgraded_nor_made_experimental(api: Api, manifests: Path) -> None:
    folder = manifests / "gateway-api"
    definition = yaml.safe_load((folder / "gateway.networking.k8s.io_gateways.yaml").read_text())
    policy, binding = yaml.safe_load_all((folder / "gateway.networking.k8s.io_vap_safeupgrades.yaml").read_text())
    annotations = definition["metadata"]["annotations"]
    # The manifests of a development version say so, which the policy takes for an old one.
    development = {**annotations, "gateway.networking.k8s.io/bundle-version": "v0.0.0-dev"}
    definition["metadata"]["annotations"] = development
    api.post(CRDS, definition)
    api.post(POLICIES, policy)
    api.post(BINDINGS, binding)
    change = {"metadata": {"annotations": {"gateway.networking.k8s.io/channel": "experimental"}}}
    refused = api.patch(f"{CRDS}/{GATEWAYS}", change, expect=422)
    assert refused.message == f'customresourcedefinitions.apiextensions.k8s.io "{GATEWAYS}" is forbidden: ' + denial(
        NAME, EXPERIMENTAL
    )
    api.delete(f"{CRDS}/{GATEWAYS}")
    eventually(lambda: api.get(f"{CRDS}/{GATEWAYS}", expect=0).code == 404)
    assert api.post(CRDS, definition, expect=422).message.endswith(denial(NAME, OLD))
    definition["metadata"]["annotations"] = {**development, "gateway.networking.k8s.io/bundle-version": "v1.6.3"}
    api.post(CRDS, definition)
