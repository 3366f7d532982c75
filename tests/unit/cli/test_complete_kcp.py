"""Suggestions of the shell for an unfinished word of `kubectl kcp` and `kubectl atoll`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.cli.kubectl import complete_kcp
from atoll.machinery.meta.objects import Object
from harness.servers.stand_ins.canned_api import CannedApi, serving

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
APIS = "/apis/apis.kcp.io/v1alpha2"
CLAIMS: list[Object] = [{"resource": "secrets"}, {"resource": "sails", "group": "sea.io"}]


class Shell:
    """Requests suggestions as kubectl does, on a kubeconfig for a canned server; the workspace is root:shop."""

    def __init__(self, api: CannedApi, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self.file, self._capsys = api, file, capsys

    def holds(self, path: str, *items: Object) -> None:
        listed: Object = {"metadata": {}, "items": list(items)}
        self.api.on(f"GET /clusters/{path}", listed)

    async def words(self, *words: str, plugin: str = "kcp") -> tuple[list[str], int]:
        """The suggestions without their descriptions, and the directive."""
        arguments = ["--kubeconfig", str(self.file), *words]
        assert await asyncio.to_thread(complete_kcp.suggest, plugin, arguments) == 0
        out, err = self._capsys.readouterr()
        assert err == ""
        *found, directive = out.splitlines()
        return [line.partition("\t")[0] for line in found], int(directive.removeprefix(":"))


def named(name: str, **more: object) -> Object:
    return {"metadata": {"name": name}, **more}


@pytest.fixture
async def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Shell]:
    async with serving(CannedApi()) as api:
        shell = Shell(api, api.kubeconfig(tmp_path, "/clusters/root:shop"), capsys)
        shell.holds(f"root{WORKSPACES}", named("provider"), named("shop"))
        shell.holds(f"root{APIS}/apiexports", named("tenancy.kcp.io"))
        shell.holds(f"root:provider{WORKSPACES}")
        shell.holds(f"root:provider{APIS}/apiexports", named("boats"), named("cars"))
        api.on(f"GET /clusters/root:provider{APIS}/apiexports/boats", {"spec": {"permissionClaims": CLAIMS}})
        shell.holds(f"root:shop{APIS}/apibindings", named("mine"), named("yours"))
        api.on(f"GET /clusters/root:shop{APIS}/apibindings/mine", {"status": {"exportPermissionClaims": CLAIMS}})
        shell.holds(f"root:shop{APIS}/apiexports", named("goods"))
        yield shell


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["cl"], ["claims"]),
        (["bind", ""], ["apiexport"]),
        (["claims", ""], ["get", "accept", "reject"]),
        (["claims", "get", ""], ["apibinding"]),
        (["crd", "s"], ["snapshot"]),
        (["bind", "x", ""], []),
        (["crd", "snapshot", "-o", "j"], ["json"]),
        (["claims", "accept", "mine", "--id"], ["--identity-hash"]),
        (["ws", "u"], ["use"]),
        (["ws", "tree", "--w"], ["--workspace", "--wide"]),
    ],
)
async def test_commands_and_flags_are_offered(shell: Shell, words: list[str], found: list[str]) -> None:
    shell.holds(f"root:shop{WORKSPACES}")
    assert (await shell.words(*words))[0] == found


@pytest.mark.parametrize(
    ("word", "found", "directive"),
    [
        ("ro", ["root:"], 6),
        ("root:", ["root:provider:", "root:shop:", "root:tenancy.kcp.io"], 6),
        ("root:provider:", ["root:provider:boats", "root:provider:cars"], 6),
        ("root/provider/b", ["root/provider/boats"], 6),
        ("..:provider:c", ["..:provider:cars"], 6),
        ("root:nowhere:", [], 4),
    ],
)
async def test_the_way_to_an_export_is_offered(shell: Shell, word: str, found: list[str], directive: int) -> None:
    shell.holds(f"root:shop{WORKSPACES}")
    assert await shell.words("bind", "apiexport", word) == (found, directive)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["bind", "apiexport", "root:provider:boats", "--accept-permission-claim", "s"], ["secrets", "sails.sea.io"]),
        (["bind", "apiexport", "root:provider:boats", ""], []),
        (["claims", "accept", ""], ["mine", "yours"]),
        (["claims", "get", "apibinding", "y"], ["yours"]),
        (["claims", "reject", "mine", "--resource", "sa"], ["sails.sea.io"]),
        (["claims", "reject", "none", "--resource", "sa"], []),
        (["claims", "accept", "mine", ""], []),
        (["claims", "accept", "-w", "..:p"], ["..:provider"]),
    ],
)
async def test_names_and_claims_are_asked_of_the_server(shell: Shell, words: list[str], found: list[str]) -> None:
    assert (await shell.words(*words))[0] == found


async def test_exports_of_this_workspace_are_offered(shell: Shell) -> None:
    assert await shell.words("e", plugin="atoll") == (["edge", "events", "export"], 4)
    assert await shell.words("events", "-o", "", plugin="atoll") == (["json", "name"], 4)
    assert await shell.words("export", "", plugin="atoll") == (["goods"], 4)


async def test_a_file_is_the_shells_own_business(shell: Shell) -> None:
    assert await shell.words("crd", "snapshot", "-f", "") == ([], 0)


async def test_a_server_that_does_not_answer_is_no_error(shell: Shell) -> None:
    shell.api.routes.clear()
    assert await shell.words("bind", "apiexport", "root:x:") == ([], 4)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["pr"], ["prep-for-syncer", "prep-for-cluster"]),
        (["ensure", ""], ["location", "wmw"]),
        (["ensure", "wmw", "--with-kube", "t"], ["true"]),
        (["ensure", "location", "--i"], ["--imw"]),
        (["ensure", "location", "--imw", "ro"], ["root"]),
        (["prep-for-syncer", "-o", "y"], []),
        (["view", "--o"], ["--off"]),
        (["remove", "location", "fl"], ["florin"]),
        (["prep-for-syncer", ""], ["florin", "guilder"]),
    ],
)
async def test_commands_of_edge_clusters_are_offered(shell: Shell, words: list[str], found: list[str]) -> None:
    shell.holds("root:shop/apis/edge.kubestellar.io/v2alpha1/synctargets", named("florin"), named("guilder"))
    shell.holds(f"root:shop{WORKSPACES}")
    assert (await shell.words(*words, plugin="kubestellar"))[0] == found
