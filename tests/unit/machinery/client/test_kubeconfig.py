"""kubeconfig files are read as kubectl reads them, and edits change nothing else."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.target import KubeconfigError, split_workspace
from atoll.machinery.process import pki


def written(file: Path, **changes: Any) -> Path:
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {"colors": True},
        "clusters": [{"name": "one", "cluster": {"server": "https://host.example:6443/kcp/clusters/root:a"}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me", "namespace": "n"}}],
        "current-context": "here",
    }
    document.update(changes)
    file.write_text(yaml.safe_dump(document))
    return file


def config(tmp_path: Path, **changes: Any) -> Kubeconfig:
    return Kubeconfig.load(str(written(tmp_path / "config", **changes)))


def user(**value: Any) -> dict[str, Any]:
    return {"users": [{"name": "me", "user": value}]}


def cluster(**value: Any) -> dict[str, Any]:
    return {"clusters": [{"name": "one", "cluster": {"server": "https://host:1/clusters/root", **value}}]}


def test_the_current_context_tells_address_workspace_and_credentials(tmp_path: Path) -> None:
    target = config(tmp_path).target()
    assert (target.host, target.port, target.path) == ("host.example", 6443, "/kcp/clusters/root:a")
    assert (target.base_url, target.workspace) == ("https://host.example:6443", "root:a")
    assert dict(target.headers) == {"authorization": "Bearer secret"}


def test_another_cluster_keeps_what_stands_before_clusters_in_the_url(tmp_path: Path) -> None:
    assert config(tmp_path).target().path_of("root:b") == "/kcp/clusters/root:b"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/clusters/root:a", ("", "root:a")),
        ("/x/clusters/root/", ("/x", "root")),
        ("", ("", "")),
        ("/prefix/", ("/prefix", "")),
    ],
)
def test_a_path_is_prefix_and_workspace(path: str, expected: tuple[str, str]) -> None:
    assert split_workspace(path) == expected


def test_plain_http_has_no_tls_and_port_80(tmp_path: Path) -> None:
    target = config(tmp_path, clusters=[{"name": "one", "cluster": {"server": "http://host"}}]).target()
    assert (target.tls, target.port, target.base_url) == (None, 80, "http://host:80")


def test_the_first_of_several_files_wins_and_absent_ones_are_passed_over(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text(yaml.safe_dump({"users": [{"name": "me", "user": {"token": "first"}}]}))
    second = written(tmp_path / "second")
    listed = f"{tmp_path / 'absent'}:{first}:{second}"
    found = Kubeconfig.load("", {"KUBECONFIG": listed})
    assert found.current == "here"
    assert dict(found.target().headers) == {"authorization": "Bearer first"}


def test_a_change_goes_into_the_file_that_has_the_entry_and_new_ones_into_the_first(tmp_path: Path) -> None:
    first, second = tmp_path / "first", written(tmp_path / "second")
    first.write_text("apiVersion: v1\nkind: Config\n")
    found = Kubeconfig.load("", {"KUBECONFIG": f"{first}:{second}"})
    found.set_entry("context", "here", {"cluster": "two"})
    found.set_entry("cluster", "two", {"server": "https://other"})
    found.use("there")
    found.save()
    assert yaml.safe_load(first.read_text())["clusters"] == [{"name": "two", "cluster": {"server": "https://other"}}]
    after = yaml.safe_load(second.read_text())
    assert after["contexts"] == [{"name": "here", "context": {"cluster": "two"}}]
    assert after["current-context"] == "there"


def test_what_is_not_changed_is_kept_and_the_file_is_private(tmp_path: Path) -> None:
    found = config(tmp_path)
    before = yaml.safe_load(found.path.read_text())
    found.path.chmod(0o644)
    found.set_entry("cluster", "new", {"server": "https://new"})
    found.save()
    after = yaml.safe_load(found.path.read_text())
    assert after.pop("clusters") == [*before.pop("clusters"), {"name": "new", "cluster": {"server": "https://new"}}]
    assert after == before
    assert stat.S_IMODE(found.path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["config"]


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    real = written(tmp_path / "real")
    link = tmp_path / "link"
    link.symlink_to(real)
    found = Kubeconfig.load(str(link))
    found.use("other")
    found.save()
    assert link.is_symlink()
    assert yaml.safe_load(real.read_text())["current-context"] == "other"


def test_nothing_changed_means_nothing_written(tmp_path: Path) -> None:
    found = config(tmp_path)
    before = found.path.stat().st_ino
    found.use("here")
    found.save()
    assert found.path.stat().st_ino == before


def test_a_copy_of_an_entry_may_be_changed_freely(tmp_path: Path) -> None:
    found = config(tmp_path)
    found.entry("context", "here")["cluster"] = "elsewhere"
    assert found.entry("context", "here")["cluster"] == "one"


def test_files_named_in_it_are_relative_to_it_and_the_token_file_wins(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    target = config(tmp_path, **user(tokenFile="token", token="inline")).target()
    assert dict(target.headers) == {"authorization": "Bearer from-file"}


def test_impersonation_goes_out_as_headers(tmp_path: Path) -> None:
    asked = {"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"Scopes/x": ["view"]}}
    headers = config(tmp_path, **user(**asked)).target().headers
    assert list(headers) == [
        ("impersonate-user", "jane"),
        ("impersonate-uid", "7"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-extra-Scopes%2Fx", "view"),
    ]


def test_an_authority_given_is_the_only_one_trusted(tmp_path: Path) -> None:
    ca = pki.make_ca("mine").certificate
    inline = config(tmp_path, **cluster(**{"certificate-authority-data": base64.b64encode(ca).decode()})).target()
    assert inline.tls is not None
    assert [each["subject"] for each in inline.tls.get_ca_certs()] == [((("commonName", "mine"),),)]
    assert inline.tls.check_hostname


def test_verification_is_only_off_when_asked_for(tmp_path: Path) -> None:
    target = config(tmp_path, **cluster(**{"insecure-skip-tls-verify": True})).target()
    assert target.tls is not None and not target.tls.check_hostname


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"current-context": ""}, "no current context"),
        ({"current-context": "gone"}, "context 'gone' is not in"),
        ({"clusters": []}, "cluster 'one' is not in"),
        ({"users": None}, "user 'me' is not in"),
        ({"clusters": [{"name": "one", "cluster": {"server": "nonsense"}}]}, "is no URL"),
        ({"clusters": [{"name": "one", "cluster": {"server": "https://host:port"}}]}, "is no URL"),
        (cluster(**{"proxy-url": "http://proxy"}), "proxy-url"),
        (cluster(**{"certificate-authority-data": "%%%"}), "not base64"),
        (cluster(**{"certificate-authority-data": "bm9wZQ=="}), "no PEM"),
        (cluster(**{"certificate-authority": "absent.crt"}), "cannot be read"),
        (user(exec={"command": "login"}), "has exec"),
        (user(username="u", password="p"), "has username"),
        (user(tokenFile="absent"), "cannot be read"),
        (user(**{"client-certificate-data": "bm9wZQ==", "client-key-data": "bm9wZQ=="}), "does not load"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(KubeconfigError, match=message):
        config(tmp_path, **changes).target()


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "\x00"])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(KubeconfigError):
        Kubeconfig.load(str(tmp_path / "config"))


def test_a_file_that_is_absent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="cannot be read"):
        Kubeconfig.load(str(tmp_path / "absent"))
    with pytest.raises(KubeconfigError, match="do not exist"):
        Kubeconfig.load("", {"KUBECONFIG": f"{tmp_path / 'a'}:{tmp_path / 'b'}"})
