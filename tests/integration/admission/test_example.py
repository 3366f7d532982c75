"""The webhook of the tutorial runs as it stands there, and refuses what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, configmap
from harness.environment import ROOT
from harness.servers.shard_process import ShardProcess

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with ShardProcess(tmp_path, "--egress-allow-cidr", "127.0.0.0/8") as shard:
        api = Api(shard, "root")
        yield api
        api.close()


@pytest.fixture
def printed() -> Iterator[str]:
    """The configuration that the running example prints."""
    command = [sys.executable, str(ROOT / "docs/examples/webhook.py"), "127.0.0.1", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.kill()


def test_the_webhook_of_the_tutorial_refuses_what_has_no_team(api: Api, printed: str) -> None:
    api.post(CONFIGURATIONS, json.loads(printed))
    refused = api.post(MAPS, configmap("a"), expect=403)
    denied = 'admission webhook "team.example.com" denied the request'
    assert refused.message == f"{denied}: a ConfigMap needs the label team"
    labelled = configmap("a")
    labelled["metadata"]["labels"] = {"team": "red"}
    api.post(MAPS, labelled)
