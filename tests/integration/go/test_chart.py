"""The chart `infra/helm/atoll`: rendered by Helm 3 and 4, compared with what was reviewed, applied into a workspace.

`golden/chart.yaml` is the chart with `externalUrl` alone; `golden/<set>.yaml` has the objects that differ with a set of
values. After a change: `CHART_GOLDEN=write python -m pytest tests/integration/go/test_chart.py`, and read the diff.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.cacheserver.config import CacheServerConfig
from atoll.cli.atoll import main
from atoll.eventgateway.config import EventGatewayConfig
from atoll.frontproxy.config import FrontProxyConfig
from atoll.machinery.process.config import ProcessConfig
from atoll.shard.config import ShardConfig
from harness.clients.api import Object
from harness.clients.go_programs import go
from harness.clients.helm import CHART, HelmError, errors, rendered, renderings
from harness.clients.kubectl import Kubectl

GOLDEN = Path(__file__).with_name("golden")
OLDEST, NEWEST = "1.31", "1.36"
URL: dict[str, Any] = {"externalUrl": "https://atoll.example"}
LARGE_SHARD = {"name": "eu-1", "workers": "auto", "labels": {"region": "eu"}, "storage": {"size": "1Ti"}}
SETS: dict[str, dict[str, Any]] = {
    "chart": {},
    "shards": {"shards": [{"name": "root"}, LARGE_SHARD], "shardDefaults": {"args": ["--log-level=debug"]}},
    "autoscaling": {
        "eventGateway": {"externalUrl": "tls://events.example:4222", "service": {"type": "LoadBalancer"}},
        "frontProxy": {"autoscaling": {"enabled": True, "maxReplicas": 3}, "service": {"type": "ClusterIP"}},
        "cacheServer": {"enabled": True, "replicas": 2},
    },
    "own-secrets": {
        "certificates": {"create": False, "secretPrefix": "ours"},
        "nats": {"enabled": False, "url": "tls://nats.example:4222"},
        "eventGateway": {"enabled": False},
        "image": {"repository": "registry.example/atoll", "tag": "1", "pullSecrets": ["registry"]},
    },
    "cert-manager": {
        "certificates": {"renewalSchedule": "", "certManager": {"enabled": True, "issuerRef": {"name": "public"}}},
        "monitoring": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True, "runbooks": "https://atoll.example/runbooks"},
            "dashboards": {"enabled": True},
        },
        "networkPolicy": {
            "clients": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "monitoring": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "shardEgress": [{"ipBlock": {"cidr": "198.51.100.0/24"}}],
        },
    },
    "scheduling": {
        "nameOverride": "lagoon",
        "networkPolicy": {"enabled": False},
        "scheduling": {
            "nodeSelector": {"disk": "local"},
            "tolerations": [{"key": "atoll", "operator": "Exists", "effect": "NoSchedule"}],
            "priorityClassName": "site",
            "spreadOver": "topology.kubernetes.io/zone",
        },
    },
}
#: What is copied from files of their own.
COPIED = ("PrometheusRule/sea-atoll", "ConfigMap/sea-atoll-dashboards")
CONFIGS: dict[str, type[ProcessConfig]] = {
    "shard": ShardConfig,
    "front-proxy": FrontProxyConfig,
    "cache-server": CacheServerConfig,
    "event-gateway": EventGatewayConfig,
}


def key(obj: Object) -> str:
    return f"{obj['kind']}/{obj['metadata']['name']}"


@pytest.fixture(scope="module")
def sets() -> dict[str, list[Object]]:
    """Every set as both versions of Helm render it, which is the same."""
    go()
    wanted = [(helm, {**URL, **values}) for values in SETS.values() for helm in (3, 4)]
    found = iter(renderings(wanted))
    made: dict[str, list[Object]] = {}
    for name in SETS:
        third, fourth = (sorted(next(found), key=key) for _ in (3, 4))
        assert third == fourth, name
        made[name] = fourth
    return made


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """The specs of pods with who makes them."""
    for each in objects:
        spec = each.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield key(each), spec["template"]["spec"]


@pytest.mark.parametrize("name", SETS)
def test_it_is_rendered_as_reviewed(sets: dict[str, list[Object]], name: str) -> None:
    base = {key(each): each for each in sets["chart"]} if name != "chart" else {}
    differing = [each for each in sets[name] if base.get(key(each)) != each and key(each) not in COPIED]
    gone = sorted(base.keys() - {key(each) for each in sets[name]})
    text = yaml.safe_dump_all([{"absent": gone}, *differing] if gone else differing, sort_keys=False, width=120)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("CHART_GOLDEN") == "write":
        path.write_text(text)
    assert path.read_text() == text


def test_alerts_and_dashboards_are_those_of_the_tree(sets: dict[str, list[Object]]) -> None:
    rules, dashboards = ({key(each): each for each in sets["cert-manager"]}[name] for name in COPIED)
    folder = CHART / "monitoring"
    assert dashboards["data"] == {path.name: path.read_text() for path in (folder / "dashboards").iterdir()}
    wanted = yaml.safe_load((folder / "alerts.yaml").read_text())
    for rule in (each for group in wanted["groups"] for each in group["rules"]):
        rule["annotations"]["runbook_url"] = f"https://atoll.example/runbooks#{rule['alert'].lower()}"
    assert rules["spec"] == wanted


@pytest.mark.parametrize("name", SETS)
def test_pods_meet_the_restricted_standard(sets: dict[str, list[Object]], name: str) -> None:
    found = dict(pods(sets[name]))
    assert len(found) > 1
    for where, pod in found.items():
        security = pod["securityContext"]
        assert (security["runAsNonRoot"], security["seccompProfile"]) == (True, {"type": "RuntimeDefault"}), where
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), where
        assert all(volume.keys() <= {"name", "secret", "emptyDir"} for volume in pod["volumes"]), where
        for container in pod["containers"]:
            own = container["securityContext"]
            assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True), where
            assert own["capabilities"] == {"drop": ["ALL"]}, where
            assert container["resources"]["limits"]["memory"], where
        # A token of the cluster is for the job alone, which writes Secrets.
        assert pod["automountServiceAccountToken"] is where.endswith("-certificates"), where


@pytest.mark.parametrize("name", SETS)
def test_processes_take_the_flags_that_they_are_given(sets: dict[str, list[Object]], name: str) -> None:
    for where, pod in pods(sets[name]):
        (container,) = pod["containers"]
        if (config := CONFIGS.get(container["command"][-1])) is None:
            continue
        flags = {arg.partition("=")[0].removeprefix("--").replace("-", "_") for arg in container["args"]}
        assert flags <= {*config.__struct_fields__, "config"}, where


@pytest.mark.long
def test_the_job_makes_every_secret_that_is_mounted(sets: dict[str, list[Object]], tmp_path: Path) -> None:
    for name, objects in sets.items():
        job = next((pod for where, pod in pods(objects) if where.startswith("Job/")), None)
        if job is None:
            assert name == "own-secrets"
            continue
        args = job["containers"][0]["args"]
        prefix = next(arg.partition("=")[2] for arg in args if arg.startswith("--name-prefix="))
        site = [arg for arg in args if not arg.startswith(("--directory", "--name", "--with"))]
        directory = tmp_path / name
        assert main.run(["certs", "init", "--directory", str(directory), *site]) == 0
        role = next(each for each in objects if each["kind"] == "Role")
        allowed = set(role["rules"][1]["resourceNames"])
        for where, pod in pods(objects):
            volumes = {
                volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume
            }
            for mount in pod["containers"][0]["volumeMounts"]:
                process = Path(mount["mountPath"]).name
                if mount["name"] in volumes and mount["name"] != "serving":
                    assert volumes[mount["name"]] == f"{prefix}-{process}", where
                    assert volumes[mount["name"]] in allowed, where
                    assert (directory / process).is_dir(), where


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "externalUrl is needed"),
        ({**URL, "shards": [{"name": "eu-1"}]}, "shards"),
        ({**URL, "shards": [{"name": "root", "replicas": 2}]}, "replicas"),
        ({**URL, "frontProxy": {"replicas": 0}}, "replicas"),
        ({**URL, "nats": {"enabled": False, "url": "tls://a:4222"}}, "needs nats.enabled"),
        ({**URL, "nats": {"enabled": False}, "eventGateway": {"enabled": False}}, "nats.url is needed"),
        (
            {**URL, "nats": {"enabled": False, "url": "tls://a:4222"}, "eventGateway": {"enabled": False}},
            "certificates.create needs nats.enabled",
        ),
        ({**URL, "colour": "blue"}, "colour"),
    ],
)
def test_bad_values_are_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(HelmError) as refused:
        rendered(4, values)
    assert text in str(refused.value)


@pytest.mark.long
def test_a_workspace_takes_it(sets: dict[str, list[Object]], kubernetes_workspace: Path, tmp_path: Path) -> None:
    kubectl, manifest = Kubectl(tmp_path, kubernetes_workspace), tmp_path / "chart.json"
    objects = [{**each, "metadata": {**each["metadata"], "namespace": "default"}} for each in sets["autoscaling"]]
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    applied = kubectl.ok("apply", "--server-side", "--validate=strict", "-f", str(manifest))
    assert applied.count(" serverside-applied") == len(objects)
    assert kubectl.ok("diff", "--server-side", "-f", str(manifest)) == ""


@pytest.mark.long
@pytest.mark.parametrize("kubernetes", [OLDEST, NEWEST])
def test_schemas_of_the_oldest_and_of_the_newest_kubernetes_take_it(kubernetes: str) -> None:
    custom = {"monitoring.coreos.com/v1", "cert-manager.io/v1"}
    for objects in renderings([(4, {**URL, **values}) for values in SETS.values()], kubernetes):
        assert errors([each for each in objects if each["apiVersion"] not in custom], kubernetes) == []


def test_the_table_of_values_is_that_of_the_schema() -> None:
    path = CHART.parent / "write_readme.py"
    spec = importlib.util.spec_from_file_location("write_readme", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    readme = (CHART / "README.md").read_text()
    assert script.written(readme) == readme, f"python {path}"
