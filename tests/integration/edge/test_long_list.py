"""A list of more than 1 MiB is several SyncerConfigs, of which a syncer reads one whole."""

from __future__ import annotations

from atoll.edge.placement_translator.syncer_list import write_list
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.syncerconfigs import MAX_SPEC_BYTES, specs_of, whole_number
from atoll.machinery.edge.syncset import sync_set
from harness.clients.api import Api
from harness.servers.shard_process import ShardProcess
from integration.edge.mailbox_world import CONFIGS, MailboxWorld


async def test_all_parts_come_through_the_view_with_one_number_and_go_with_what_they_list(
    edge: ShardProcess, root: Api
) -> None:
    world = MailboxWorld(root)
    listed = {ObjectRef("", "configmaps", "default", f"{number:0240d}"): "v1" for number in range(4300)}
    async with Client(Kubeconfig.load(str(edge.kubeconfig)).target("root"), world.cluster) as client:
        await write_list(client, lambda parts: specs_of(listed, ()))
        stored = world.admin.get(CONFIGS).json["items"]
        assert [each["metadata"]["name"] for each in stored] == ["the-one", "the-one-2"]
        assert sum(len(str(each["spec"])) for each in stored) > MAX_SPEC_BYTES
        configs = [item["object"] for item in world.items().values() if item["resource"] == "syncerconfigs"]
        assert whole_number(configs)
        found = sync_set(configs, [], {})
        assert len(found.objects) == len(listed)
        first = next(iter(listed))
        await write_list(client, lambda parts: specs_of({first: "v1"}, ()))
    assert [each["metadata"]["name"] for each in world.admin.get(CONFIGS).json["items"]] == ["the-one"]
    assert whole_number(world.admin.get(CONFIGS).json["items"])
