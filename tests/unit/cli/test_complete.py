"""Suggestions of the shell for an unfinished word of `kubectl ws` and `kubectl create workspace`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.cli.kubectl import complete
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden
from harness.servers.stand_ins.canned_api import CannedApi, serving

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
TYPES = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"


class Shell:
    """Requests suggestions as kubectl does, on a kubeconfig for a canned server whose current workspace is root:a."""

    def __init__(self, api: CannedApi, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self.file, self._capsys = api, file, capsys

    def holds(self, path: str, *names: str, of: str = WORKSPACES, phase: str = "Ready") -> None:
        spec = {"type": {"path": "root", "name": "universal"}}
        items = [{"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}} for name in names]
        listed: Object = {"metadata": {}, "items": items}
        self.api.on(f"GET /clusters/{path}{of}", listed)

    async def lines(self, *words: str) -> list[str]:
        arguments = ["--kubeconfig", str(self.file), *words]
        assert await asyncio.to_thread(complete.suggest, arguments) == 0
        out, err = self._capsys.readouterr()
        assert err == ""
        return out.splitlines()

    async def words(self, *words: str) -> tuple[list[str], int]:
        """The suggestions without their descriptions, and the directive."""
        *found, directive = await self.lines(*words)
        return [line.partition("\t")[0] for line in found], int(directive.removeprefix(":"))


@pytest.fixture
async def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Shell]:
    async with serving(CannedApi()) as api:
        shell = Shell(api, api.kubeconfig(tmp_path, "/clusters/root:a"), capsys)
        shell.holds("root", "a", "b")
        shell.holds("root:a", "web", "web-2", "data")
        shell.holds("root:a:web", "shop")
        yield shell


async def test_nothing_typed_yet_may_become_anything(shell: Shell) -> None:
    words, directive = await shell.words("")
    assert set(words) == {
        "..",
        ".",
        "-",
        "~",
        ":",
        "current",
        "use",
        "tree",
        "create",
        "create-context",
        "web",
        "web-2",
        "data",
        "root",
    }
    assert directive == complete.NO_SPACE | complete.NO_FILES


async def test_names_below_are_found_by_what_they_begin_with_and_told_with_their_type(shell: Shell) -> None:
    assert await shell.lines("we") == ["web\ttype root:universal", "web-2\ttype root:universal", ":6"]
    shell.holds("root:a", "web", phase="Initializing")
    assert await shell.lines("use", "we") == ["web\ttype root:universal, Initializing", ":6"]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("web:", ["web:shop"]),
        ("web/s", ["web/shop"]),
        ("root:", ["root:a", "root:b"]),
        ("..:", ["..:a", "..:b"]),
        ("../b", ["../b"]),
        ("/root/a/d", ["/root/a/data"]),
        (":root:a:w", [":root:a:web", ":root:a:web-2"]),
        (":", [":", ":root"]),
        ("/r", ["/root"]),
        (":a", []),
        ("web:x", []),
        ("Nothing:", []),
        ("..:..:..:", []),
        ("..", [".."]),
    ],
)
async def test_a_path_goes_on_where_it_leads(shell: Shell, word: str, found: list[str]) -> None:
    assert sorted((await shell.words(word))[0]) == found


async def test_a_tilde_goes_on_at_home(shell: Shell) -> None:
    assert (await shell.words("~"))[0] == ["~"]
    assert (await shell.words("~:"))[0] == []
    home: Object = {"spec": {"URL": "https://host/clusters/2abc"}, "metadata": {"name": "cluster"}}
    shell.api.on(f"GET /clusters/root{WORKSPACES}/~", home)
    shell.holds("2abc", "mine")
    shell.holds("2abc:mine", "deep")
    assert (await shell.words("~:"))[0] == ["~:mine"]
    assert (await shell.words("use", "~/mine/"))[0] == ["~/mine/deep"]


async def test_one_place_is_enough(shell: Shell) -> None:
    for words in (("web", ""), ("use", "web", ""), ("tree", ""), ("current", "w")):
        assert await shell.words(*words) == ([], complete.NO_FILES)


async def test_flags_of_the_command_are_offered(shell: Shell) -> None:
    assert (await shell.words("tree", "--"))[0] == [
        "--kubeconfig",
        "--context",
        "--workspace",
        "--full",
        "--wide",
        "--interactive",
    ]
    assert (await shell.words("create", "x", "--e"))[0] == ["--enter"]
    assert (await shell.words("--s"))[0] == ["--short"]


async def test_types_are_offered_by_name_and_by_path_from_here_to_the_top(shell: Shell) -> None:
    shell.holds("root:a", "team", "universal", of=TYPES)
    shell.holds("root", "universal", "organization", of=TYPES)
    words, directive = await shell.words("create", "x", "--type", "")
    assert words == [
        "organization",
        "root:a:team",
        "root:a:universal",
        "root:organization",
        "root:universal",
        "team",
        "universal",
    ]
    assert directive == complete.NO_FILES
    lines = await shell.lines("create", "--type", "un")
    assert lines == ["universal\tof root:a", ":4"]
    assert (await shell.words("create", "x", "--type=root:u"))[0] == ["--type=root:universal"]
    shell.api.on(f"GET /clusters/root:a{TYPES}", Forbidden("no"))
    assert (await shell.words("create", "x", "--type", "u"))[0] == ["universal"]
    assert await shell.words("tree", "--type", "u") == ([], complete.NO_FILES)


async def test_what_cannot_be_asked_is_silently_not_offered(shell: Shell, tmp_path: Path) -> None:
    shell.api.on(f"GET /clusters/root:a{WORKSPACES}", Forbidden("no"))
    assert await shell.words("we") == ([], complete.NO_FILES)
    assert (await shell.words("u"))[0] == ["use"]
    shell.file = tmp_path / "absent"
    assert await shell.words("we") == ([], complete.NO_FILES)
    shell.file.write_text("{")
    assert await shell.words("we") == ([], complete.NO_FILES)
    assert await shell.words("--context") == (["--context"], complete.NO_FILES)
    assert await shell.words("--context", "") == ([], complete.NO_FILES)
