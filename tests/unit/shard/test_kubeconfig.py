"""What a start does to an admin.kubeconfig that people have worked with."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.machinery.apiserver.authentication.admin_tokens import AdminTokens
from atoll.shard import kubeconfig

OLD, NEW = "https://127.0.0.1:6443", "https://127.0.0.1:7443"
FIRST, SECOND = AdminTokens("shard-1", "kcp-1"), AdminTokens("shard-1", "kcp-2")
CURRENT = "workspace.kcp.io/current"


def entry(config: dict[str, Any], part: str, name: str) -> dict[str, Any]:
    found = [one for one in config[f"{part}s"] if one["name"] == name]
    assert len(found) == 1, f"{name} is there {len(found)} times"
    return dict(found[0][part])


def authority(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


@pytest.fixture
def worked_with(tmp_path: Path) -> dict[str, Any]:
    """The file of a first start after a person entered a workspace and added a cluster elsewhere."""
    path = tmp_path / kubeconfig.FILE_NAME
    kubeconfig.write(path, OLD, b"ca-1", FIRST)
    config: dict[str, Any] = yaml.safe_load(path.read_text())
    acme = {"server": f"{OLD}/clusters/root:acme", kubeconfig._AUTHORITY: authority(b"ca-1")}
    config["clusters"] += [
        {"name": CURRENT, "cluster": acme},
        {"name": "elsewhere", "cluster": {"server": f"{OLD}0/clusters/x", "insecure-skip-tls-verify": True}},
    ]
    config["users"].append({"name": "robot", "user": {"token": "robot"}})
    config["contexts"] += [
        {"name": CURRENT, "context": {"cluster": CURRENT, "user": "kcp-admin", "namespace": "web"}},
        {"name": "elsewhere", "context": {"cluster": "elsewhere", "user": "robot"}},
    ]
    config["current-context"] = CURRENT
    config["preferences"] = {"colors": True}
    entry_of_base = next(one for one in config["contexts"] if one["name"] == "base")
    entry_of_base["context"]["namespace"] = "mine"
    path.write_text(yaml.safe_dump(config))
    return config


def again(directory: Path, url: str = NEW, ca: bytes = b"ca-2") -> dict[str, Any]:
    path = directory / kubeconfig.FILE_NAME
    kubeconfig.write(path, url, ca, SECOND)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def test_a_first_start_writes_the_names_that_tools_count_on(tmp_path: Path) -> None:
    config = again(tmp_path)
    assert [one["name"] for one in config["contexts"]] == ["root", "base", "system:admin", "shard-base"]
    assert [one["name"] for one in config["users"]] == ["kcp-admin", "shard-admin"]
    assert (config["current-context"], entry(config, "cluster", "root")["server"]) == ("root", f"{NEW}/clusters/root")


def test_what_people_added_stays(tmp_path: Path, worked_with: dict[str, Any]) -> None:
    config = again(tmp_path)
    assert (config["current-context"], config["preferences"]) == (CURRENT, {"colors": True})
    for part, name in (("context", CURRENT), ("context", "elsewhere"), ("cluster", "elsewhere"), ("user", "robot")):
        assert entry(config, part, name) == entry(worked_with, part, name)
    assert entry(config, "context", "base") == {"cluster": "base", "user": "kcp-admin", "namespace": "mine"}


def test_our_entries_get_address_authority_and_tokens_of_today(tmp_path: Path, worked_with: dict[str, Any]) -> None:
    config = again(tmp_path)
    for name, path in (("root", "/clusters/root"), ("base", ""), ("system:admin", "/clusters/system:admin")):
        wanted = {"server": NEW + path, kubeconfig._AUTHORITY: authority(b"ca-2")}
        assert entry(config, "cluster", name) == wanted
    assert entry(config, "user", "kcp-admin") == {"token": "kcp-2"}
    assert entry(config, "user", "shard-admin") == {"token": "shard-1"}


def test_the_workspace_a_person_is_in_moves_with_the_port(tmp_path: Path, worked_with: dict[str, Any]) -> None:
    moved = {"server": f"{NEW}/clusters/root:acme", kubeconfig._AUTHORITY: authority(b"ca-2")}
    assert entry(again(tmp_path), "cluster", CURRENT) == moved


def test_our_context_that_was_pointed_elsewhere_comes_back(tmp_path: Path, worked_with: dict[str, Any]) -> None:
    next(one for one in worked_with["contexts"] if one["name"] == "root")["context"]["user"] = "robot"
    (tmp_path / kubeconfig.FILE_NAME).write_text(yaml.safe_dump(worked_with))
    assert entry(again(tmp_path), "context", "root")["user"] == "kcp-admin"


def test_a_current_context_that_is_gone_becomes_root(tmp_path: Path, worked_with: dict[str, Any]) -> None:
    (tmp_path / kubeconfig.FILE_NAME).write_text(yaml.safe_dump({**worked_with, "current-context": "deleted"}))
    assert again(tmp_path)["current-context"] == "root"


@pytest.mark.parametrize("text", ["", "[]", "clusters: 7\nusers: [3]\ncontexts: [{name: x, context: 1}]", "a: [", "\0"])
def test_a_file_that_is_no_kubeconfig_is_made_one(tmp_path: Path, text: str) -> None:
    (tmp_path / kubeconfig.FILE_NAME).write_text(text)
    assert kubeconfig.stored_admin_tokens(tmp_path / kubeconfig.FILE_NAME) == {}
    assert entry(again(tmp_path), "cluster", "base")["server"] == NEW


def test_the_masters_token_is_read_back(tmp_path: Path, worked_with: dict[str, Any]) -> None:
    assert kubeconfig.stored_admin_tokens(tmp_path / kubeconfig.FILE_NAME)["shard-admin"] == "shard-1"
