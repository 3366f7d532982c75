"""Paths on the command line, and changes of a kubeconfig by a change of workspace."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import yaml

from atoll.cli.kubectl import create_workspace, workspaces
from atoll.cli.kubectl.plugin import Failure
from atoll.cli.kubectl.tree import Node, render
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.meta.objects import Object


@pytest.mark.parametrize(
    ("current", "wanted", "expected"),
    [
        ("root:a", "b", "root:a:b"),
        ("root:a", "b:c", "root:a:b:c"),
        ("root:a", "b/c/", "root:a:b:c"),
        ("root:a", ":root:x", "root:x"),
        ("root:a", "/root/x", "root:x"),
        ("root:a", "root:x", "root:x"),
        ("root:a", ":", "root"),
        ("root:a", "/", "root"),
        ("root:a", "root", "root"),
        ("root:a", ":1x9p0q7w5e3r2t8y", "1x9p0q7w5e3r2t8y"),
        ("root:a", ":system:admin", "system:admin"),
        ("root:a", ".", "root:a"),
        ("root:a", "./b", "root:a:b"),
        ("root:a", "..", "root"),
        ("root:a:b", "../..", "root"),
        ("root:a:b", "../c", "root:a:c"),
        ("", ":root:x", "root:x"),
        ("", "root", "root"),
    ],
)
def test_a_path_leads_where_a_person_expects(current: str, wanted: str, expected: str) -> None:
    assert workspaces.resolve(current, workspaces.normalize(wanted)) == expected


@pytest.mark.parametrize(
    ("current", "wanted", "message"),
    [
        ("root", "..", 'workspace "root" has no parent'),
        ("root:a", "../..", 'workspace "root" has no parent'),
        ("root", "a::b", "is not a name"),
        ("root", "Acme", '"Acme" is not a name'),
        ("root", "a?b", "is not a name"),
        ("root", "-a", "is not a name"),
        ("", "a", "does not point to a workspace"),
        ("", ".", "does not point to a workspace"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(current: str, wanted: str, message: str) -> None:
    with pytest.raises(Failure, match=message):
        workspaces.resolve(current, workspaces.normalize(wanted))


def test_the_home_directory_a_shell_put_in_is_the_home_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/jane")
    assert workspaces.normalize("/home/jane") == "~"
    assert workspaces.normalize("/home/jane/a") == "~:a"
    assert workspaces.normalize("/home/janet") == ":home:janet"
    monkeypatch.setenv("HOME", "/root")
    assert workspaces.normalize("/root/a") == ":root:a"


URL = "https://host:6443/kcp/clusters/"


def fresh(tmp_path: Path, workspace: str = "root") -> Kubeconfig:
    file = tmp_path / "config"
    document = {
        "clusters": [{"name": "base", "cluster": {"server": URL + workspace, "certificate-authority-data": "Zm9v"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [{"name": "start", "context": {"cluster": "base", "user": "me", "namespace": "n"}}],
        "current-context": "start",
    }
    file.write_text(yaml.safe_dump(document))
    return Kubeconfig.load(str(file))


def stored(kubeconfig: Kubeconfig) -> tuple[str, dict[str, Object], dict[str, str]]:
    """Current context, contexts and the clusters' servers of the file."""
    document = yaml.safe_load(kubeconfig.path.read_text())
    contexts = {item["name"]: item["context"] for item in document["contexts"]}
    clusters = {item["name"]: item["cluster"] for item in document["clusters"]}
    assert all(cluster["certificate-authority-data"] == "Zm9v" for cluster in clusters.values())
    assert all((context["user"], context["namespace"]) == ("me", "n") for context in contexts.values())
    return document["current-context"], contexts, {name: value["server"] for name, value in clusters.items()}


def test_entering_makes_kcps_entries_and_keeps_the_start(tmp_path: Path) -> None:
    kubeconfig = fresh(tmp_path)
    workspaces.enter(kubeconfig, "start", "root:a")
    current, contexts, servers = stored(kubeconfig)
    assert current == "workspace.kcp.io/current"
    assert {name: value["cluster"] for name, value in contexts.items()} == {
        "start": "base",
        "workspace.kcp.io/current": "workspace.kcp.io/current",
        "workspace.kcp.io/previous": "base",
    }
    assert servers == {"base": URL + "root", "workspace.kcp.io/current": URL + "root:a"}


def test_entering_again_moves_current_to_previous(tmp_path: Path) -> None:
    kubeconfig = fresh(tmp_path)
    workspaces.enter(kubeconfig, "start", "root:a")
    workspaces.enter(kubeconfig, workspaces.CURRENT, "root:a:b")
    _, contexts, servers = stored(kubeconfig)
    assert contexts["workspace.kcp.io/previous"]["cluster"] == "workspace.kcp.io/previous"
    assert servers["workspace.kcp.io/previous"] == URL + "root:a"
    assert servers["workspace.kcp.io/current"] == URL + "root:a:b"


def test_entering_where_one_is_forgets_nothing(tmp_path: Path) -> None:
    kubeconfig = fresh(tmp_path)
    workspaces.enter(kubeconfig, "start", "root:a")
    before = stored(kubeconfig)
    workspaces.enter(kubeconfig, workspaces.CURRENT, "root:a")
    assert stored(kubeconfig) == before


def test_going_back_and_forth(tmp_path: Path) -> None:
    kubeconfig = fresh(tmp_path)
    workspaces.enter(kubeconfig, "start", "root:a")
    workspaces.enter(kubeconfig, workspaces.CURRENT, "root:a:b")
    for current, previous in (("root:a", "root:a:b"), ("root:a:b", "root:a")):
        assert workspaces.require_previous(kubeconfig) == current
        workspaces.go_back(kubeconfig, workspaces.CURRENT)
        assert workspaces.workspace_of(kubeconfig, kubeconfig.current) == current
        assert workspaces.require_previous(kubeconfig) == previous


def test_going_back_to_where_one_started(tmp_path: Path) -> None:
    kubeconfig = fresh(tmp_path, "root:s")
    workspaces.enter(kubeconfig, "start", "root:a")
    for current, previous in (("root:s", "root:a"), ("root:a", "root:s")):
        workspaces.go_back(kubeconfig, workspaces.CURRENT)
        assert kubeconfig.current == "workspace.kcp.io/current"
        assert workspaces.workspace_of(kubeconfig, kubeconfig.current) == current
        assert workspaces.require_previous(kubeconfig) == previous
    assert stored(kubeconfig)[2]["base"] == URL + "root:s"


def test_there_may_be_no_way_back(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no previous workspace found in kubeconfig"):
        workspaces.require_previous(fresh(tmp_path))


def test_a_tree_tells_of_phases_that_are_not_the_usual_one() -> None:
    nodes = [Node("root:a", [], "root:team", "Ready", "abc"), Node("root:b", [], "root:team", "Initializing")]
    assert render(Node("root", nodes), full=False) == ".\n└── root\n    ├── a\n    └── b (Initializing)"
    wide = render(Node("root", nodes), full=False, wide=True).splitlines()
    assert wide[2:] == [
        "    ├── a  type=root:team  phase=Ready  cluster=abc",
        "    └── b  type=root:team  phase=Initializing",
    ]


def test_a_tree_is_drawn_with_names_or_whole_paths() -> None:
    top = Node("root", [Node("root:a", [Node("root:a:x")]), Node("root:b")])
    assert render(top, full=False) == ".\n└── root\n    ├── a\n    │   └── x\n    └── b"
    assert render(top, full=True).splitlines()[3] == "    │   └── root:a:x"


def wanted(**flags: str) -> Object:
    options = argparse.Namespace(name="w", type="", location_selector="")
    vars(options).update(flags)
    return dict(create_workspace.manifest(options)["spec"])


def test_the_flags_of_create_become_a_spec() -> None:
    assert wanted() == {}
    assert wanted(type="root:org:team") == {"type": {"path": "root:org", "name": "team"}}
    assert wanted(type=":root:team") == {"type": {"path": "root", "name": "team"}}
    assert wanted(type="team") == {"type": {"name": "team"}}
    labels = {"region": "eu", "tier": ""}
    assert wanted(location_selector="region=eu, tier==") == {"location": {"selector": {"matchLabels": labels}}}


@pytest.mark.parametrize("text", ["region", "=eu", "a!=b", "a=b,"])
def test_a_location_selector_is_key_and_value(text: str) -> None:
    with pytest.raises(Failure, match="not of the form key=value"):
        wanted(location_selector=text)
