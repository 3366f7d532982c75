"""`kubectl atoll export` against a canned server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.cli.kubectl import atoll
from atoll.machinery.meta.hashes import export_hash
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden, InternalError
from atoll.machinery.wire.exchange import Exchange
from harness.clients.terminal import PluginTerminal, Ran
from harness.servers.stand_ins.canned_api import CannedApi, serving

HERE = "/clusters/root:provider"
EXPORTS = f"{HERE}/apis/apis.kcp.io/v1alpha2/apiexports"
SLICES = f"{HERE}/apis/apis.kcp.io/v1alpha1/apiexportendpointslices"
VIEW = "/services/apiexport/abc/boats"
SEEN = f"{VIEW}/clusters/*/apis/apis.kcp.io/v1alpha2/apibindings"
CLAIM: Object = {"resource": "secrets", "verbs": ["get", "list"]}
METRICS = '# HELP a b\natoll_stream_lag_events 3.0\natoll_stream_lag_seconds 0.25\nother{a="b"} 1.0\n'


class Terminal(PluginTerminal):
    """Runs the plug-in as its console script does, in workspace root:provider of a canned server."""

    async def export(self, *arguments: str) -> Ran:
        return await self.run(atoll.dispatch, "export", *arguments)

    def holds(self, *exports: Object, urls: list[str] | None = None) -> None:
        """Exports in this workspace, with one endpoint slice of boats; its URL is the canned server's."""
        url = f"https://127.0.0.1:{self.api.port}{VIEW}"
        ends = [{"url": each} for each in ([url] if urls is None else urls)]
        found = [
            {"spec": {"export": {"path": "root:provider", "name": "boats"}}, "status": {"endpoints": ends}},
            {
                "spec": {"export": {"path": "root:other", "name": "boats"}},
                "status": {"endpoints": [{"url": "https://elsewhere"}]},
            },
        ]
        self.api.on(f"GET {EXPORTS}", listed(*exports))
        self.api.on(f"GET {SLICES}", listed(*found))


def listed(*items: Object) -> Object:
    return {"metadata": {}, "items": list(items)}


def export(name: str = "boats", *claims: Object, **status: object) -> Object:
    resources = [{"name": "sails", "group": "sea.io", "schema": "v1.sails.sea.io", "storage": {"crd": {}}}]
    return {
        "metadata": {"name": name, "annotations": {"kcp.io/path": "root:provider", "kcp.io/cluster": "abc"}},
        "spec": {"resources": resources, "permissionClaims": list(claims)},
        "status": {"identityHash": "ff", **status},
    }


def binding(path: str, phase: str = "Bound", state: str = "", *, applied: bool = True) -> Object:
    answers = [{**CLAIM, "selector": {"matchAll": True}, "state": state}] if state else []
    status: Object = {"phase": phase, "appliedPermissionClaims": [CLAIM] if applied and answers else []}
    annotations = {"kcp.io/path": path, "kcp.io/cluster": "x"}
    labels = {"internal.apis.kcp.io/export": export_hash("abc", "boats")}
    return {
        "metadata": {"name": "b", "annotations": annotations, "labels": labels},
        "spec": {"permissionClaims": answers},
        "status": status,
    }


def measured(text: str = METRICS) -> object:
    async def script(exchange: Exchange) -> None:
        exchange.reply(200, [("content-type", "text/plain")], text.encode())

    return script


@pytest.fixture
async def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Terminal]:
    async with serving(CannedApi()) as api:
        terminal = Terminal(api, api.kubeconfig(tmp_path, HERE), capsys)
        api.on("GET /metrics", measured())
        yield terminal


async def test_consumers_are_shown_with_their_answers_and_the_streams_lag(terminal: Terminal) -> None:
    terminal.holds(export("boats", CLAIM))
    seen = [
        binding("root:b", state="Accepted"),
        binding("root:a", state="Rejected"),
        binding("root:c", "Binding"),
        binding("root:d", state="Accepted", applied=False),
    ]
    terminal.api.on(f"GET {SEEN}", listed(*seen))
    assert await terminal.export("boats") == (
        0,
        (
            "APIExport boats of root:provider\n"
            "  identity   ff\n"
            "  resource   sails.sea.io (v1.sails.sea.io)\n"
            "  claim      secrets (get, list)\n"
            f"  endpoint   https://127.0.0.1:{terminal.api.port}{VIEW}\n"
            "  stream     3 events behind, the oldest 0.2 s old\n"
            "\n"
            "CONSUMER   BINDING   PHASE     CLAIMS\n"
            "root:a     b         Bound     secrets rejected\n"
            "root:b     b         Bound     secrets accepted\n"
            "root:c     b         Binding   secrets open\n"
            "root:d     b         Bound     secrets accepted (not applied)\n"
        ),
        "",
    )


async def test_an_export_nobody_bound_says_how_it_is_bound(terminal: Terminal) -> None:
    broken = {"type": "IdentityValid", "status": "False", "message": "no key"}
    terminal.holds(export(conditions=[broken]), urls=[])
    out = (await terminal.export("boats")).out
    assert "condition  IdentityValid is False: no key\n" in out
    assert out.endswith(
        "\nNobody has bound it. A consumer does, in a workspace of its own:"
        " kubectl kcp bind apiexport root:provider:boats\n"
    )


async def test_who_may_not_look_through_the_view_hears_what_is_missing(terminal: Terminal) -> None:
    terminal.holds(export())
    terminal.api.on(f"GET {SEEN}", Forbidden("not yours"))
    terminal.api.on("GET /metrics", Forbidden("not yours"))
    ran = await terminal.export("boats")
    assert ran.code == 0
    assert "refused    not yours; you need the verbs get and list on apiexports/content of boats" in ran.out
    assert "stream     lag unknown: /metrics is for those who operate the shard\n" in ran.out
    assert ran.out.endswith("Its consumers are not known: see above.\n")


async def test_a_shard_that_does_not_answer_is_told_as_such(terminal: Terminal) -> None:
    terminal.holds(export(), urls=["https://127.0.0.1:1/services/apiexport/abc/boats"])
    out = (await terminal.export("boats")).out
    assert "does not answer: cannot connect" in out
    assert "lag unknown: cannot connect" in out
    terminal.holds(export())
    terminal.api.on(f"GET {SEEN}", InternalError("oh"))
    terminal.api.on("GET /metrics", measured("other 1\n"))  # type: ignore[arg-type]
    out = (await terminal.export("boats")).out
    assert "does not answer: oh" in out
    assert "the shard publishes no stream" in out


async def test_all_exports_are_counted(terminal: Terminal) -> None:
    terminal.holds(export("boats", CLAIM))
    # A claim of APIBindings also shows bindings of other exports.
    other = binding("root:c")
    other["metadata"]["labels"] = {"internal.apis.kcp.io/export": export_hash("abc", "cars")}
    terminal.api.on(f"GET {SEEN}", listed(binding("root:a"), binding("root:b", "Binding"), other))
    assert (await terminal.export()).out == (
        "NAME    RESOURCES   CLAIMS   CONSUMERS   BOUND\nboats   1           1        2           1\n"
    )
    assert "GET /metrics" not in terminal.api.paths()
    terminal.api.on(f"GET {SEEN}", Forbidden("not yours"))
    ran = await terminal.export()
    assert ran.out.splitlines()[1] == "boats   1           1        ?           ?"
    assert ran.err.startswith("Warning: boats: not yours; you need")


async def test_an_export_without_an_endpoint_slice_is_not_taken_for_one_without_consumers(terminal: Terminal) -> None:
    terminal.holds(export("cars"), urls=[])
    ran = await terminal.export()
    assert ran.out.splitlines()[1] == "cars   1           0        ?           ?"
    assert ran.err.startswith("Warning: cars: no APIExportEndpointSlice of this workspace names it")
    assert (await terminal.export("cars")).out.endswith("Its consumers are not known: see above.\n")


async def test_an_export_that_is_not_there(terminal: Terminal) -> None:
    terminal.holds()
    assert (await terminal.export()).out == "Workspace root:provider exports nothing.\n"
    missing = await terminal.export("cars")
    assert missing == (1, "", 'Error: no APIExport "cars" in workspace root:provider; there are: none at all\n')


def test_what_is_not_understood_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert [atoll.dispatch(arguments) for arguments in ([], ["--help"], ["unheard"])] == [2, 0, 2]
    assert "unheard" in capsys.readouterr().err
