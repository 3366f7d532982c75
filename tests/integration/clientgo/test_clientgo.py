"""Programs built on client-go, with its defaults: protobuf bodies, watch-lists, leases, metadata.

Long, because on a fresh machine Go downloads the modules and compiles them, which takes minutes. `program/` is what is
run; it names its checks itself. Without Go the test fails, unless ATOLL_WITHOUT_GO=1 says that this is known.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.kubectl import Kubectl
from harness.shard import ShardProcess

PROGRAM = Path(__file__).parent / "program"
BUILD_TIMEOUT_S, RUN_TIMEOUT_S = 900.0, 240.0
CHECKS = (
    "typed bodies are protobuf", "configmap", "secret", "namespace", "event", "access review", "token request",
    "leader election", "informer", "metadata informer", "dynamic client",
)  # fmt: skip

pytestmark = [pytest.mark.long, pytest.mark.timeout(int(BUILD_TIMEOUT_S + RUN_TIMEOUT_S) + 60)]


def go() -> str:
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None and os.environ.get("ATOLL_WITHOUT_GO") == "1":
        pytest.skip("no Go, and ATOLL_WITHOUT_GO=1")
    assert found is not None, "client-go is tested with Go itself: install it, or set ATOLL_WITHOUT_GO=1"
    return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built program."""
    binary = tmp_path_factory.mktemp("go") / "clientgo"
    done = subprocess.run(
        [go(), "build", "-o", str(binary), "."], cwd=PROGRAM, capture_output=True, text=True,
        timeout=BUILD_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return binary


@pytest.mark.parametrize("workers", [0, 2])
def test_client_go_works_with_its_defaults(program: Path, tmp_path: Path, workers: int) -> None:
    with ShardProcess(tmp_path, "--workers", str(workers)) as shard:
        Kubectl(tmp_path, shard.kubeconfig).ok("create", "workspace", "go", "--enter")
        done = subprocess.run(
            [str(program), "-kubeconfig", str(shard.kubeconfig)], capture_output=True, text=True,
            timeout=RUN_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.stdout.splitlines() == [f"ok {name}" for name in CHECKS], done.stdout + done.stderr
        assert done.returncode == 0
