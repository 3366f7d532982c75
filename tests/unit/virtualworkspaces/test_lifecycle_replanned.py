"""A write into an initializing workspace is decided again when it is planned again: the workspace must still wait."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from atoll.machinery.apiserver.authorization.attributes import Decision
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.kcp.workspaces.lifecycle import INITIALIZATION
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.virtualworkspaces.lifecycle import LifecycleView
from harness.servers.in_process.minimal_shard import Cell, cell

NAME = "root:type"


class Permissive:
    """An authorizer that allows everything."""

    def authorize(self, *arguments: object, anywhere: bool = False) -> Decision:
        return Decision(True)


async def waits(here: Cell, *names: str) -> None:
    obj = here.found(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON)
    status = {**obj["status"], "phase": "Initializing", "initializers": list(names)}
    await here.change(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON, status=status)


async def test_a_write_that_is_planned_again_after_the_initializer_is_done_is_refused(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        await here.cluster("leaf")
        await waits(here, NAME)
        rules = SimpleNamespace(initializer_permissions=(), terminator_permissions=())
        found: Any = SimpleNamespace(spec=rules)
        kind, allowing = here.kind(LOGICAL_CLUSTERS), cast("Any", Permissive())
        view = LifecycleView(INITIALIZATION, kind, allowing, lambda *_: found)
        alice = User("alice", (AUTHENTICATED,))
        info = parse("POST", b"/clusters/leaf/api/v1/namespaces/default/configmaps")
        request: Any = SimpleNamespace(cluster="leaf", info=info, user=alice)
        authorize = view._content_authorizer(request, alice, NAME)
        with here.store.snapshot() as snapshot:
            assert authorize(snapshot, "create").allowed
        await waits(here, "root:other")
        with here.store.snapshot() as snapshot:
            assert not authorize(snapshot, "create").allowed
