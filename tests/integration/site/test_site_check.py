"""`kubectl atoll shards` and `kubectl atoll site check` on a site whose shards are restored from backups."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import configmap, eventually
from harness.clients.site_workspaces import WORKSPACES, led_to, on, ready, workspace
from harness.servers.site import Site

pytestmark = pytest.mark.long

MAPS = "/api/v1/namespaces/default/configmaps"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Atoll by its module."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, text=True, capture_output=True, timeout=120, env=environment)  # noqa: PLW1510


class Checked:
    """A site of two shards with backups of both, and a workspace on `shard-1`, made before them."""

    def __init__(self, directory: Path, site: Site) -> None:
        self.site, self._directory = site, directory
        self.admin = site.root.api("root")
        ready(self.admin, workspace(self.admin, name="old", selector=on("shard-1")))
        for shard in site.shards:
            self._store("backup", shard, "--to", str(directory / shard))

    def plugin(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run("atoll.cli.kubectl.atoll", *arguments, "--kubeconfig", str(self.site.kubeconfig))

    def check(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return self.plugin("site", "check", *flags)

    def make(self, name: str) -> str:
        """A workspace on `shard-1` with an object in it: its logical cluster."""
        made = ready(self.admin, workspace(self.admin, name=name, selector=on("shard-1")))
        led_to(self.site.proxy.api(made["spec"]["cluster"])).post(MAPS, configmap("kept", {"a": name}))
        return str(made["spec"]["cluster"])

    def restore(self, shard: str) -> None:
        """Put a shard back to its backup."""
        self.site.shards[shard].stop()
        self._store("restore", shard, "--from", str(self._directory / shard), "--in-place")
        self.site.shards[shard].start()

    def _store(self, command: str, shard: str, *flags: str) -> None:
        where = ("--root-directory", str(self.site.layout.shard(shard)), "--shard-name", shard)
        done = run("atoll.cli", command, *where, "--allow-any-filesystem", *flags)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checked]:
    directory = tmp_path_factory.mktemp("checked")
    with Site(directory, shards=2) as site:
        yield Checked(directory, site)


def test_the_shards_of_a_site_are_shown_with_what_they_need(checked: Checked) -> None:
    shown = eventually(lambda: (found := checked.plugin("shards")).returncode == 0 and found, "all are well", 60.0)
    header, root, other = shown.stdout.splitlines()
    assert header.split()[:5] == ["NAME", "REGION", "STATUS", "HEARTBEAT", "WORKSPACES"]
    assert (root.split()[0], other.split()[0]) == ("root", "shard-1")
    assert "Ready" in root and "Ready" in other
    assert "?" not in shown.stdout
    assert "days (" in other
    checked.site.shards["shard-1"].stop()
    try:
        shown = checked.plugin("shards")
        assert shown.returncode == 1
        assert "shard-1 does not answer" in shown.stderr
        assert "Unreachable" in shown.stdout
        refused = checked.check("--repair", "--delete-workspaces")
        assert refused.returncode == 1
        assert "shard shard-1 does not answer, so nothing can be called missing" in refused.stderr
    finally:
        checked.site.shards["shard-1"].start()


def test_a_cluster_whose_workspace_was_restored_away_gets_it_back_with_all_its_content(checked: Checked) -> None:
    before = checked.check()
    assert (before.returncode, before.stderr) == (0, ""), before.stdout
    assert "each has the other" in before.stdout
    cluster = checked.make("late")
    checked.restore("root")
    found = checked.check()
    assert found.returncode == 1
    assert f"Logical cluster {cluster} (root:late) on shard shard-1: root has no Workspace late" in found.stdout
    checked.admin.get(f"{WORKSPACES}/late", expect=404)
    repaired = checked.check("--repair")
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert ready(checked.admin, "late")["spec"]["cluster"] == cluster
    answer = eventually(
        lambda: (said := checked.site.proxy.api("root:late").send("GET", f"{MAPS}/kept")).code == 200 and said,
        "its content is served by its path",
        60.0,
    )
    assert answer.json["data"] == {"a": "late"}
    checked.admin.delete(f"{WORKSPACES}/late")
    eventually(lambda: checked.admin.send("GET", f"{WORKSPACES}/late").code == 404, "it can be deleted", 60.0)


def test_a_workspace_whose_cluster_is_gone_is_deleted_only_when_that_is_asked_for(checked: Checked) -> None:
    cluster = checked.make("short")
    checked.restore("shard-1")
    found = checked.check("--repair")
    assert found.returncode == 1
    assert (
        f"Workspace short of root (shard root): its logical cluster {cluster} is not on shard shard-1" in found.stdout
    )
    assert "short of root stays" in found.stdout
    checked.admin.get(f"{WORKSPACES}/short")
    deleted = checked.check("--repair", "--delete-workspaces")
    assert "short of root is deleted" in deleted.stdout
    eventually(lambda: checked.admin.send("GET", f"{WORKSPACES}/short").code == 404, "it is gone", 60.0)
    assert checked.check().returncode == 0
    assert checked.make("short") != cluster
