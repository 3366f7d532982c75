"""`kubectl atoll events` against a canned server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from atoll.cli.kubectl import atoll
from atoll.cli.kubectl.events.streams import Merged, Stream
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden
from atoll.machinery.stream.events import Event, Operation
from atoll.machinery.stream.tenants.structured_events import Origin, encode_change, encode_control
from atoll.machinery.wire.exchange import Exchange
from harness.clients.terminal import PluginTerminal, Ran
from harness.servers.stand_ins.canned_api import JSON, CannedApi, serving

HERE = "/clusters/root:harbour"
FOLLOW = f"GET /services/events{HERE}/follow"
START = 1_795_000_000_000_000
ORIGIN = Origin("root", "9d2f4c1e", "b7c0aa31")


class Terminal(PluginTerminal):
    """Runs the plug-in as its console script does, in workspace root:harbour of a canned server."""

    async def events(self, *arguments: str) -> Ran:
        return await self.run(atoll.dispatch, "events", *arguments)

    def follow_queries(self) -> list[dict[str, list[str]]]:
        """The parameters of the requests for changes that came after the probes."""
        return [each for each in self.api.follows if "since" in each]  # type: ignore[attr-defined]


class Api(CannedApi):
    """A canned server of a workspace with ConfigMaps, Secrets, Leases and Deployments."""

    def __init__(self) -> None:
        super().__init__()
        self.follows: list[dict[str, list[str]]] = []
        for path in (HERE, f"{HERE}:east"):
            self.on(f"GET {path}/api", discovery("", ("configmaps", "ConfigMap", "cm"), ("secrets", "Secret", "")))
            apps = discovery("apps", ("deployments", "Deployment", "deploy"))["items"]
            leases = discovery("coordination.k8s.io", ("leases", "Lease", ""))["items"]
            self.on(f"GET {path}/apis", {"items": apps + leases})

    def __call__(self, exchange: Exchange) -> None:
        parts = urlsplit(exchange.request.target.decode())
        if parts.path.endswith("/follow"):
            self.follows.append(parse_qs(parts.query))
        super().__call__(exchange)


def discovery(group: str, *kinds: tuple[str, str, str]) -> Object:
    rows = [
        {
            "resource": plural,
            "scope": "Namespaced",
            "singularResource": kind.lower(),
            "shortNames": [short] if short else [],
            "responseKind": {"kind": kind},
            "verbs": ["get", "watch"],
        }
        for plural, kind, short in kinds
    ]
    return {"items": [{"metadata": {"name": group}, "versions": [{"version": "v1", "resources": rows}]}]}


def entry(manager: str, **more: str) -> Object:
    return {"manager": manager, "operation": "Update", "time": "2026-11-18T11:06:40Z", **more}


def config_map(name: str, data: Object, *managers: Object) -> Object:
    metadata = {"name": name, "namespace": "default", "managedFields": list(managers)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def change(operation: Operation, second: int, after: Object, before: Object | None = None, **more: Any) -> bytes:
    key = ObjectKey(ResourceType("", "configmaps", "core"), "2x9k", "default", after["metadata"]["name"])
    payload, revision = msgspec.json.encode(after), START + second * 1_000_000
    event = Event("changes", operation, "root", "9d2f4c1e", "b7c0aa31", 1, revision, 0, key, payload)
    return encode_change(event, full=True, before=msgspec.json.encode(before) if before else b"", **more)


def control(operation: str, second: int, **more: str) -> bytes:
    return encode_control(ORIGIN, operation, START + second * 1_000_000, **more)


def lines(*documents: bytes, ends: bool = False) -> Callable[[Exchange], Awaitable[None]]:
    """An answer of `follow`; it stays open, unless it ends."""

    async def script(exchange: Exchange) -> None:
        exchange.start(200, [("content-type", "application/x-ndjson")])
        for each in documents:
            exchange.write(each + b"\n")
        await exchange.drain()
        if ends:
            exchange.finish()
            return
        gone = asyncio.Event()
        exchange.on_close(gone.set)
        exchange.on_drain(gone.set)
        await gone.wait()

    return script


@pytest.fixture
async def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Terminal]:
    async with serving(Api()) as api:
        yield Terminal(api, api.kubeconfig(tmp_path, HERE), capsys)


OLD = config_map("north", {"colour": "white", "gone": "1"}, entry("kubectl"))
NEW = config_map("north", {"colour": "red", "a.b": "2"}, entry("kubectl"), entry("painter", subresource="status"))
CHANGES = (
    change(Operation.ADDED, 1, OLD),
    change(Operation.MODIFIED, 2, NEW, OLD),
    change(Operation.DELETED, 3, NEW, NEW),
    control("BOOKMARK", 4),
)


async def test_a_row_tells_when_what_was_done_by_whom_and_which_fields_differ(terminal: Terminal) -> None:
    terminal.api.on(FOLLOW, lines(*CHANGES))
    found = await terminal.events("cm", "--since", "30m")
    head, added, modified, deleted = (" ".join(line.split()) for line in found.out.splitlines())
    assert head == "TIME OPERATION KIND NAME BY CHANGES"
    assert added == "2026-11-18T11:06:41Z ADDED ConfigMap default/north kubectl -"
    assert modified == (
        "2026-11-18T11:06:42Z MODIFIED ConfigMap default/north painter/status "
        'data[a.b]: (none) -> "2" data.colour: "white" -> "red" data.gone: "1" -> (none)'
    )
    assert deleted == "2026-11-18T11:06:43Z DELETED ConfigMap default/north - -"
    assert terminal.follow_queries() == [
        {"resource": ["configmaps"], "full": ["true"], "previous": ["true"], "since": ["30m"]}
    ]


async def test_without_resources_all_that_are_on_the_stream_and_permitted_are_shown(terminal: Terminal) -> None:
    """One refusal refuses the request, so the parts of it are tried."""

    async def script(exchange: Exchange) -> None:
        query = parse_qs(urlsplit(exchange.request.target.decode()).query)
        if "secrets" in query["resource"]:
            error = Forbidden("secrets: watch is needed in the whole cluster")
            exchange.reply(403, JSON, msgspec.json.encode(error.status()))
        else:
            await lines(control("BOOKMARK", 4))(exchange)

    terminal.api.on(FOLLOW, script)
    assert (await terminal.events()) == Ran(0, "", "")
    assert [each["resource"] for each in terminal.follow_queries()] == [["configmaps", "deployments.apps"]]
    assert terminal.follow_queries()[0]["since"] == ["1h"]
    named = await terminal.events("secrets")
    assert (named.code, named.err) == (1, "Error: secrets: watch is needed in the whole cluster\n")


async def test_a_resource_that_is_not_served_is_an_error(terminal: Terminal) -> None:
    found = await terminal.events("boats")
    assert (found.code, found.err) == (1, "Error: root:harbour does not serve boats\n")
    assert (await terminal.events("deploy.extensions")).code == 1


async def test_changes_are_printed_as_lines_of_json_or_as_names(terminal: Terminal) -> None:
    terminal.api.on(FOLLOW, lines(*CHANGES))
    printed = (await terminal.events("cm", "-o", "json")).out.splitlines()
    assert [json.loads(line)["atolloperation"] for line in printed] == ["ADDED", "MODIFIED", "DELETED"]
    assert (await terminal.events("cm", "-o", "name")).out == "configmaps/default/north\n"


async def test_it_says_from_when_there_is_history(terminal: Terminal) -> None:
    missing = control("RESYNC", 1, reason="the log begins later")
    terminal.api.on(FOLLOW, lines(missing, *CHANGES))
    found = await terminal.events("cm", "--since", "9h")
    said = "Warning: root:harbour: there is history from 2026-11-18T11:06:41Z on (the log begins later)\n"
    assert (found.code, found.err, len(found.out.splitlines())) == (0, said, 4)


async def test_it_ends_with_the_reason_once_the_right_is_gone(terminal: Terminal) -> None:
    gone = control("CLOSED", 2, state="Revoked", reason="watch of configmaps is not allowed")
    terminal.api.on(FOLLOW, lines(CHANGES[0], gone))
    found = await terminal.events("cm", "-w")
    assert (found.code, found.err) == (1, "Error: root:harbour: Revoked: watch of configmaps is not allowed\n")


async def test_an_answer_that_ends_early_is_an_error_and_not_a_short_history(terminal: Terminal) -> None:
    terminal.api.on(FOLLOW, lines(), lines(CHANGES[0], ends=True))
    found = await terminal.events("cm")
    assert (found.code, found.out) == (1, "")


async def test_the_workspaces_below_are_shown_together_in_order(terminal: Terminal) -> None:
    workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
    items = [{"metadata": {"name": name}} for name in ("east", "west")]
    terminal.api.on(f"GET {HERE}{workspaces}", {"metadata": {}, "items": items})
    terminal.api.on(f"GET {HERE}:east{workspaces}", {"metadata": {}, "items": []})
    for kind in ("api", "apis"):
        terminal.api.on(f"GET {HERE}:west/{kind}", Forbidden("not yours"))
    terminal.api.on(FOLLOW, lines(CHANGES[0], CHANGES[2], control("BOOKMARK", 4)))
    terminal.api.on(f"GET /services/events{HERE}:east/follow", lines(CHANGES[1], control("BOOKMARK", 4)))
    found = await terminal.events("cm", "--recursive")
    rows = [line.split()[:3] for line in found.out.splitlines()[1:]]
    at = "2026-11-18T11:06:4"
    assert rows == [
        ["root:harbour", f"{at}1Z", "ADDED"],
        ["root:harbour:east", f"{at}2Z", "MODIFIED"],
        ["root:harbour", f"{at}3Z", "DELETED"],
    ]
    assert found.err == "Warning: root:harbour:west: not yours\n"


async def test_a_stream_that_broke_goes_on_behind_the_last_change(terminal: Terminal) -> None:
    first, second, third = CHANGES[:3]
    terminal.api.on(FOLLOW, lines(first, control("BOOKMARK", 1), ends=True), lines(second, third))
    target = Kubeconfig.load(str(terminal.file)).target()
    rows: list[str] = []
    async with Client(target) as client, asyncio.timeout(30):
        events = client.view(f"{target.base_url}/services/events", "root:harbour")
        stream = Stream(events, "root:harbour", ["configmaps"], "now")
        batches = Merged([stream], lambda received: received.event.atolloperation, live=True).history()
        async for batch in batches:
            rows += batch
            if len(rows) == 3:
                break
        await batches.aclose()
    assert rows == ["ADDED", "MODIFIED", "DELETED"]
    last = json.loads(control("BOOKMARK", 1))["id"]
    assert [each["since"] for each in terminal.follow_queries()] == [["now"], [last]]


async def test_a_long_value_or_many_fields_make_no_long_line(terminal: Terminal) -> None:
    before = config_map("north", {f"key{number}": "x" for number in range(20)}, entry("kubectl"))
    after = config_map("north", {f"key{number}": "y\n" * 500 for number in range(20)}, entry("ed\x1b[2J"))
    terminal.api.on(FOLLOW, lines(change(Operation.MODIFIED, 2, after, before), control("BOOKMARK", 4)))
    out = (await terminal.events("cm")).out
    assert len(out.splitlines()) == 2
    assert len(out.splitlines()[1]) < 1000
    assert "and 12 more" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("since", ["1d", "-1h", "0h", "1h30m"])
async def test_a_time_that_is_none_is_refused(since: str, terminal: Terminal) -> None:
    with pytest.raises(SystemExit) as ended:
        await terminal.events(f"--since={since}")
    assert ended.value.code == 2
