"""A shard makes its own streams, and decides what they source: nothing of another shard's, whatever it names."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.meta.objects import Object
from atoll.machinery.stream.definitions import definition
from atoll.machinery.stream.permissions import IMPORTED_API, OWN_API, SOURCE_API, delivery_subject, reader_user
from atoll.machinery.stream.subjects import CHANGES, STATE, stream_name
from harness.servers.tenant_server import TenantServer
from harness.waits import until

OWN, OWN_STATE, THEIRS = stream_name(CHANGES, "root"), stream_name(STATE, "root"), stream_name(CHANGES, "east")


async def test_a_stream_of_a_shard_sources_its_own_account_and_nothing_of_another_shard(tmp_path: Path) -> None:
    async with TenantServer(tmp_path) as server:
        root = server.owners["root"]
        apis = (OWN_API, IMPORTED_API.format(shard="east"), SOURCE_API)
        delivered = (delivery_subject(reader_user("root")), "atoll.changes.root")
        external = [{"api": api, "deliver": deliver} for api in apis for deliver in delivered]
        sources: list[Object] = [{"name": OWN}, {"name": THEIRS}]
        sources += [{"name": THEIRS, "external": each, "filter_subject": ">"} for each in external]
        taken: list[Object] = []
        for source in sources:
            if not await _refused(server, [*taken, source]):
                taken.append(source)
        assert taken[0] == {"name": OWN}, "the shard may have its streams source"
        await server.publish("east", "theirs", 5)
        await server.publish("root", "own", 3)

        async def sourced() -> bool:
            info: Object = await root.api(f"STREAM.INFO.{OWN_STATE}")
            return bool(info["state"]["messages"])

        await until(sourced, "what the shard's other stream has is sourced")
        subjects = (await root.api(f"STREAM.INFO.{OWN_STATE}", {"subjects_filter": ">"}))["state"]["subjects"]
        assert subjects == {"atoll.changes.root.core.core.configmaps.own": 1}


async def _refused(server: TenantServer, sources: list[Object]) -> bool:
    try:
        config = {**definition(STATE, "root"), "sources": sources}
        await server.owners["root"].api(f"STREAM.UPDATE.{OWN_STATE}", config)
    except Exception:
        return True
    return False
