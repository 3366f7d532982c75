"""`kubectl ws` and `kubectl create workspace` against a canned server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.cli.kubectl import create_workspace, wait, ws
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import AlreadyExists, Forbidden, Unauthorized
from harness.clients.terminal import PluginTerminal, Ran
from harness.servers.stand_ins.canned_api import CannedApi, event, serving, watching

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"


class Terminal(PluginTerminal):
    """Runs the plug-ins as their console scripts do, on a kubeconfig for a canned server."""

    async def ws(self, *arguments: str) -> Ran:
        return await self.run(ws.dispatch, *arguments)

    async def create(self, *arguments: str) -> Ran:
        return await self.run(create_workspace.dispatch, *arguments)

    @property
    def current(self) -> str:
        return Kubeconfig.load(str(self.file)).target().workspace

    def open(self, path: str, **spec: object) -> None:
        """Serve a workspace with access."""
        self.api.on(f"GET /clusters/{path}/api", {"kind": "APIVersions"})
        self.api.on(f"GET /clusters/{path}/apis", {"kind": "APIGroupList"})
        parent, _, name = path.rpartition(":")
        if parent:
            self.api.on(f"GET /clusters/{parent}{WORKSPACES}/{name}", workspace(name))

    def close(self, path: str) -> None:
        """Serve a workspace without access."""
        for document in ("api", "apis"):
            self.api.on(f"GET /clusters/{path}/{document}", Forbidden("access denied"))


@pytest.fixture
async def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Terminal]:
    async with serving(CannedApi()) as api:
        terminal = Terminal(api, api.kubeconfig(tmp_path), capsys)
        terminal.open("root")
        yield terminal


def workspace(name: str, phase: str = "Ready", type: str = "universal", revision: int = 7) -> Object:
    return {
        "metadata": {"name": name, "resourceVersion": str(revision)},
        "spec": {"type": {"path": "root", "name": type}},
        "status": {"phase": phase, "conditions": [{"type": "WorkspaceScheduled", "status": "False", "message": "why"}]},
    }


async def test_showing_asks_nobody(terminal: Terminal) -> None:
    for arguments in ((), (".",), ("current",)):
        assert await terminal.ws(*arguments) == (0, 'Current workspace is "root".\n', "")
    assert await terminal.ws("current", "--short") == (0, "root\n", "")
    assert await terminal.ws("--short") == (0, "root\n", "")


async def test_going_somewhere_looks_first_and_tells_the_type(terminal: Terminal) -> None:
    terminal.open("root:a")
    assert await terminal.ws("a") == (0, 'Current workspace is "root:a" (type root:universal).\n', "")
    assert terminal.current == "root:a"
    assert await terminal.ws("use", "..") == (0, 'Current workspace is "root".\n', "")
    assert await terminal.ws("-", "--short") == (0, "root:a\n", "")
    assert terminal.current == "root:a"


async def test_a_workspace_that_is_not_there_is_not_entered(terminal: Terminal) -> None:
    terminal.close("root:a")
    assert await terminal.ws("a") == (1, "", 'Error: workspace "root:a" not found\n')
    assert terminal.current == "root"


async def test_a_workspace_one_may_not_enter_is_denied(terminal: Terminal) -> None:
    terminal.close("root:a")
    terminal.api.on(f"GET /clusters/root{WORKSPACES}/a", Forbidden("no"))
    assert await terminal.ws("a") == (1, "", 'Error: access to workspace "root:a" denied\n')
    terminal.api.on(f"GET /clusters/root{WORKSPACES}/a", workspace("a"))
    assert await terminal.ws("a") == (1, "", 'Error: access to workspace "root:a" denied\n')


async def test_a_workspace_that_is_not_ready_is_told_apart(terminal: Terminal) -> None:
    terminal.close("root:a")
    terminal.api.on(f"GET /clusters/root{WORKSPACES}/a", workspace("a", "Initializing"))
    assert (await terminal.ws("a")).err == 'Error: workspace "root:a" is not ready (phase Initializing)\n'


async def test_what_may_not_be_read_in_the_parent_does_not_close_the_door(terminal: Terminal) -> None:
    terminal.open("root:a")
    terminal.api.on(f"GET /clusters/root{WORKSPACES}/a", Forbidden("no"))
    assert await terminal.ws("a") == (0, 'Current workspace is "root:a".\n', "")


async def test_bad_credentials_are_told_as_such(terminal: Terminal) -> None:
    terminal.api.on("GET /clusters/root/apis", Unauthorized())
    assert await terminal.ws(":") == (1, "", "Error: Unauthorized\n")


async def test_a_way_back_that_is_gone_is_not_taken(terminal: Terminal) -> None:
    terminal.open("root:a")
    terminal.open("root:b")
    await terminal.ws("a")
    await terminal.ws(":root:b")
    terminal.close("root:a")
    assert (await terminal.ws("-")).code == 1
    assert terminal.current == "root:b"


async def test_no_way_back_and_no_name(terminal: Terminal) -> None:
    assert (await terminal.ws("-")).err == "Error: no previous workspace found in kubeconfig\n"
    assert (await terminal.ws("")).code == 2


async def test_home_is_where_the_server_says(terminal: Terminal) -> None:
    refusal = await terminal.ws("~")
    assert (refusal.code, refusal.err) == (1, "Error: the server gives you no home workspace: no such thing\n")
    home: Object = {"spec": {"URL": "https://host/clusters/2abc"}, "metadata": {"name": "cluster"}}
    terminal.api.on(f"GET /clusters/root{WORKSPACES}/~", home)
    terminal.open("2abc")
    assert (await terminal.ws("~")).out == 'Current workspace is "2abc".\n'


async def test_claims_nobody_answered_are_warned_of(terminal: Terminal) -> None:
    claims = [{"group": "", "resource": "secrets"}, {"group": "apps", "resource": "deployments"}]
    binding = {
        "metadata": {"name": "b"},
        "spec": {"permissionClaims": [{"resource": "secrets", "state": "Rejected"}]},
        "status": {"exportPermissionClaims": claims},
    }
    listed: Object = {"metadata": {}, "items": [binding]}
    terminal.api.on("GET /clusters/root/apis/apis.kcp.io/v1alpha2/apibindings", listed)
    ran = await terminal.ws(":")
    assert ran.code == 0
    assert ran.err == 'Warning: APIBinding "b" neither accepts nor rejects the claim on deployments.apps\n'


async def test_a_tree_leaves_out_what_may_not_be_listed(terminal: Terminal) -> None:
    def children(path: str, *names: str) -> None:
        items = [{"metadata": {"name": name}} for name in names]
        terminal.api.on(f"GET /clusters/{path}{WORKSPACES}", {"metadata": {}, "items": items})

    children("root", "b", "a")
    children("root:b", "x")
    children("root:b:x")
    assert await terminal.ws("tree") == (0, ".\n└── root\n    ├── a\n    └── b\n        └── x\n", "")
    assert "root:b:x" in (await terminal.ws("tree", "--full")).out
    terminal.api.on(f"GET /clusters/root{WORKSPACES}", Forbidden("not yours"))
    assert await terminal.ws("tree") == (1, "", "Error: not yours\n")


@pytest.mark.parametrize("command", [["-i"], ["tree", "--interactive"]])
async def test_a_workspace_is_chosen_by_its_number_on_a_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    ran = await terminal.ws(*command)
    assert (ran.code, ran.err) == (
        1,
        "Error: --interactive needs a terminal; use kubectl ws tree and kubectl ws PATH\n",
    )
    for path, names in (("root", ("b", "a")), ("root:b", ()), ("root:a", ())):
        items = [{"metadata": {"name": name}} for name in names]
        terminal.api.on(f"GET /clusters/{path}{WORKSPACES}", {"metadata": {}, "items": items})
    terminal.open("root:b")
    monkeypatch.setattr("atoll.cli.kubectl.ws.is_terminal", lambda: True)
    for text, code in (("9", 1), ("x", 1), ("0", 1), ("²", 1), ("", 0)):
        monkeypatch.setattr("builtins.input", lambda prompt, text=text: text)
        assert (await terminal.ws(*command)).code == code
        assert terminal.current == "root"
    monkeypatch.setattr("builtins.input", lambda prompt: " 3 ")
    ran = await terminal.ws(*command)
    assert ran.out.startswith("   1  └── root\n   2      ├── a\n   3      └── b\n")
    assert (ran.code, terminal.current) == (0, "root:b")


async def test_a_command_starts_from_another_workspace_if_told_to(terminal: Terminal) -> None:
    terminal.open("root:a:b")
    assert (await terminal.ws("use", "b", "-w", "a", "--short")).out == "root:a:b\n"
    terminal.api.on(f"GET /clusters/root:c{WORKSPACES}", {"metadata": {}, "items": []})
    assert (await terminal.ws("tree", "--workspace", ":root:c")).out == ".\n└── c\n"
    assert (await terminal.ws("create-context", "-w", "..:x")).code == 0
    assert terminal.current == "root:a:x"
    terminal.api.on(f"POST /clusters/root:c{WORKSPACES}", workspace("w"))
    assert (await terminal.create("w", "-w", ":root:c")).code == 0
    refused = await terminal.ws("tree", "-w", "No")
    assert refused.err == 'Error: "No" is not a workspace path: "No" is not a name\n'


async def test_a_context_of_its_own(terminal: Terminal) -> None:
    refused = await terminal.ws("create-context")
    assert refused.err == 'Error: context "root" already exists in kubeconfig, use --overwrite to update it\n'
    assert (await terminal.ws("create-context", "mine")).out == 'Created context "mine" and switched to it.\n'
    assert Kubeconfig.load(str(terminal.file)).current == "mine"
    again = await terminal.ws("create-context", "mine")
    assert again.err == 'Error: context "mine" already exists in kubeconfig, use --overwrite to update it\n'
    kept = await terminal.ws("create-context", "mine", "--overwrite", "--keep-current")
    assert kept.out == 'Updated context "mine".\n'


async def test_a_context_that_points_to_no_workspace(terminal: Terminal) -> None:
    terminal.api.kubeconfig(terminal.file.parent, "")
    assert (await terminal.ws()).err == 'Error: the current context "root" does not point to a workspace\n'
    assert (await terminal.ws("a")).code == 1
    assert (await terminal.ws(":")).out == 'Current workspace is "root".\n'


async def test_a_server_that_is_not_there_and_a_kubeconfig_that_is_not_there(terminal: Terminal) -> None:
    terminal.api.port = 1
    terminal.api.kubeconfig(terminal.file.parent)
    assert (await terminal.ws(":")).err.startswith("Error: cannot connect to 127.0.0.1:1")
    terminal.file.unlink()
    assert (await terminal.ws()).err.startswith("Error: kubeconfig ")


CREATED = 'Workspace "w" (type root:universal) created. Waiting for it to be ready...\n'
READY = 'Workspace "w" (type root:universal) is ready to use.\n'


async def test_creating_waits_by_a_watch_on_the_one_object(terminal: Terminal) -> None:
    terminal.api.on(f"POST /clusters/root{WORKSPACES}", workspace("w", "", revision=5))
    progress = [event("MODIFIED", workspace("w", phase, revision=9)) for phase in ("Initializing", "Ready")]
    terminal.api.on(f"GET /clusters/root{WORKSPACES}", watching(*progress))
    assert await terminal.create("w", "--type", "root:universal") == (0, CREATED + READY, "")
    assert decode(terminal.api.requests[0].body)["spec"] == {"type": {"path": "root", "name": "universal"}}
    assert len(terminal.api.requests) == 2
    query = terminal.api.requests[1].query
    assert (query["fieldSelector"], query["resourceVersion"]) == ("metadata.name=w", "5")
    assert terminal.current == "root"


async def test_who_may_not_watch_is_served_by_asking_again(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "ASK_AGAIN_S", 0.001)
    terminal.api.on(f"POST /clusters/root{WORKSPACES}", workspace("w", ""))
    terminal.api.on(f"GET /clusters/root{WORKSPACES}", Forbidden("no watch"))
    terminal.api.on(f"GET /clusters/root{WORKSPACES}/w", workspace("w", "Initializing"), workspace("w"))
    assert (await terminal.create("w")).out == CREATED + READY


@pytest.mark.parametrize("then", ["end", "cut"])
async def test_a_watch_that_ends_early_is_followed_by_a_look(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(wait, "ASK_AGAIN_S", 0.001)
    terminal.api.on(f"POST /clusters/root{WORKSPACES}", workspace("w", ""))
    terminal.api.on(f"GET /clusters/root{WORKSPACES}", watching(then=then))
    terminal.api.on(f"GET /clusters/root{WORKSPACES}/w", workspace("w"))
    assert (await terminal.create("w")).code == 0


async def test_a_workspace_that_does_not_become_ready_says_why(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_workspace, "READY_TIMEOUT_S", 0.2)
    terminal.api.on(f"POST /clusters/root{WORKSPACES}", workspace("w", "Scheduling"))
    terminal.api.on(f"GET /clusters/root{WORKSPACES}", watching())
    ran = await terminal.create("w", "--enter")
    assert ran.code == 1
    assert ran.err == 'Error: workspace "w" is not ready after 0 s (phase Scheduling, WorkspaceScheduled: why)\n'
    assert terminal.current == "root"


async def test_a_workspace_is_not_waited_for_on_request(terminal: Terminal) -> None:
    terminal.open("root:w")
    terminal.api.on(f"POST /clusters/root{WORKSPACES}", workspace("w", "Scheduling"))
    ran = await terminal.create("w", "--ignore-not-ready")
    assert ran == (
        0,
        'Workspace "w" (type root:universal) created.\nWorkspace "w" is not ready yet (phase Scheduling).\n',
        "",
    )
    terminal.api.on(f"POST /clusters/root{WORKSPACES}", workspace("w"))
    ran = await terminal.create("w", "--ignore-not-ready", "--enter")
    assert (ran.code, terminal.current) == (0, "root:w")


async def test_a_workspace_deleted_meanwhile_is_not_waited_for(terminal: Terminal) -> None:
    terminal.api.on(f"POST /clusters/root{WORKSPACES}", workspace("w", "Scheduling"))
    terminal.api.on(f"GET /clusters/root{WORKSPACES}", watching(event("DELETED", workspace("w", "Scheduling"))))
    assert (await terminal.create("w")).err == 'Error: workspace "w" was deleted while it was waited for\n'


async def test_entering_and_a_context_after_creating(terminal: Terminal) -> None:
    terminal.open("root:w")
    terminal.api.on(f"POST /clusters/root{WORKSPACES}", workspace("w"))
    ran = await terminal.create("w", "--enter", "--create-context", "mine")
    entered = 'Created context "mine".\nCurrent workspace is "root:w" (type root:universal).\n'
    assert ran.out == CREATED + READY + entered
    assert terminal.current == "root:w"
    assert Kubeconfig.load(str(terminal.file)).target("mine").workspace == "root:w"
    calls = len(terminal.api.requests)
    assert (await terminal.create("x", "--create-context", "mine")).code == 1
    assert len(terminal.api.requests) == calls


async def test_an_existing_workspace_is_refused_or_taken_if_it_is_the_one_meant(terminal: Terminal) -> None:
    terminal.api.on(f"POST /clusters/root{WORKSPACES}", AlreadyExists('workspaces "w" already exists'))
    terminal.api.on(f"GET /clusters/root{WORKSPACES}/w", workspace("w"))
    assert (await terminal.create("w")).err == 'Error: workspaces "w" already exists\n'
    for type in ("universal", "root:universal"):
        ran = await terminal.create("w", "--ignore-existing", "--type", type)
        assert ran.out == 'Workspace "w" (type root:universal) already exists.\n' + READY
    ran = await terminal.create("w", "--ignore-existing", "--type", "root:team")
    assert "with type root:universal instead of root:team" in ran.err


async def test_ws_create_is_the_other_plug_in(terminal: Terminal) -> None:
    terminal.api.on(f"POST /clusters/root{WORKSPACES}", workspace("w"))
    assert (await terminal.ws("create", "w")).out == CREATED + READY


def test_help_is_for_everybody(capsys: pytest.CaptureFixture[str]) -> None:
    assert ws.dispatch(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: kubectl ws")
    with pytest.raises(SystemExit) as ended:
        ws.dispatch(["tree", "--wrong"])
    assert ended.value.code == 2


async def test_the_plug_ins_load_no_part_of_a_server() -> None:
    plug_ins = ("ws", "create_workspace", "kcp", "bind", "claims", "crd_snapshot", "atoll", "export", "complete_kcp")
    program = f"import {', '.join(f'atoll.cli.kubectl.{name}' for name in plug_ins)}, sys; print(*sys.modules)"
    services = Path(ws.__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=services, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    loaded = set(out.decode().split())
    servers = ("apiserver", "storage", "stream", "kinds", "control")
    assert "atoll.machinery.client.client" in loaded
    assert not {f"atoll.machinery.{name}" for name in servers} & loaded
    assert not {"atoll.shard", "atoll.standalone", "structlog", "lmdb", "nats", "uvloop"} & loaded
