"""What `infra/compose.yaml` promises, read without an engine."""

from __future__ import annotations

import re

import yaml

from harness.environment import ROOT

TEXT = (ROOT / "infra/compose.yaml").read_text()
SERVICES = yaml.safe_load(TEXT)["services"]


def test_every_setting_is_described_with_its_default() -> None:
    described = re.findall(r"^(\w+)=(.*)$", (ROOT / "infra/.env.example").read_text(), re.MULTILINE)
    assert sorted(set(re.findall(r"\$\{(\w+):-([^}]*)\}", TEXT))) == sorted(described)
    assert not re.findall(r"\$\{\w+\}", TEXT), "a setting without a default"


def test_every_process_is_bounded_watched_and_without_rights() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}
        if service.get("network_mode") == "none":
            continue
        assert service["restart"] == "unless-stopped"
        assert {"mem_limit", "pids_limit", "healthcheck"} <= service.keys(), name
    assert [name for name, service in SERVICES.items() if "cap_add" in service] == ["volumes"]


def test_a_process_sees_its_own_files_and_only_certs_those_of_all() -> None:
    mounts = {name: [str(each).split(":")[0] for each in service["volumes"]] for name, service in SERVICES.items()}
    processes = [name for name in mounts if name not in ("volumes", "certs", "balancer")]
    for name in processes:
        assert mounts[name] == [name, f"{name}-files"]
        assert f"{name}-files:/etc/atoll/{name}:ro" in SERVICES[name]["volumes"]
    assert mounts["certs"] == ["site", *(f"{name}-files" for name in processes)]
    named = {argument.partition("=")[0].partition("/")[2] for argument in SERVICES["certs"]["command"][3:]}
    assert set(processes) <= named
