"""A shard that reads the others' streams at another address than the one that it publishes to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.clients.api import Api, eventually
from harness.clients.exports import BINDINGS, binding, make_export, schema
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.site import Site
from harness.servers.tcp_relay import TcpRelay

pytestmark = pytest.mark.long

SHARD = "shard-1"


@pytest.fixture(params=["its own credential", "another credential"])
def followed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Site, TcpRelay]]:
    site = Site(tmp_path, shards=2, proxy=False)
    with TcpRelay(urlsplit(site.nats.url).port or 0) as relay:
        command = site.shards[SHARD].command
        command += ["--follow-nats-url", f"nats://127.0.0.1:{relay.port}"]
        if request.param == "another credential":
            given = site.layout.credential(f"shard-{SHARD}")
            shutil.copy(given, given.with_name("follower.json"))
            command += ["--follow-nats-credentials-file", str(given.with_name("follower.json"))]
        with site:
            yield site, relay


def place(site: Site, shard: str) -> tuple[str, Api]:
    """The path of a new workspace on a shard, and its API there."""
    admin = site.root.api("root")
    made = ready(admin, workspace(admin, selector=on(shard)))
    return f"root:{made['metadata']['name']}", site.shards[shard].api(made["spec"]["cluster"])


def knows(api: Api, path: str) -> bool:
    """Whether a shard knows a workspace on another one: it then lets an export of it be bound, and waits for that."""
    return bool(api.send("POST", f"{BINDINGS}?dryRun=All", binding(path, "shapes")).code == 201)


def phase(api: Api) -> str:
    return str((api.get(f"{BINDINGS}/shapes").json.get("status") or {}).get("phase", ""))


def test_while_that_address_is_away_a_shard_is_heard_and_hears_of_nothing(followed: tuple[Site, TcpRelay]) -> None:
    site, relay = followed
    (here, near), (there, far) = place(site, SHARD), place(site, "root")
    for api in (near, far):
        make_export(api, "others", schema("squares"))
    eventually(lambda: knows(near, there) and knows(far, here), "each knows the other's workspace", 60.0)
    assert relay.passed
    relay.cut()
    for api, path, group in ((near, there, "near.example.com"), (far, here, "far.example.com")):
        api.post(BINDINGS, binding(path, "shapes"))
        make_export(api, "shapes", schema("circles", group))
    eventually(lambda: phase(far) == "Bound", "what it commits arrives at the site", 60.0)
    assert phase(near) != "Bound"
    relay.join()
    eventually(lambda: phase(near) == "Bound", "what the site commits arrives", 120.0)
