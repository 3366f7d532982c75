"""API workers: a policy is in force in each process from the next request on, and each compiles it by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import Api, configmap, workspace_under
from harness.clients.policies import POLICIES, Policies, denial
from harness.servers.shard_process import ShardProcess

pytestmark = pytest.mark.long

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CONNECTIONS = 12


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path_factory.mktemp("shard"), "--workers", "2") as shard:
        yield shard


@pytest.fixture
def api(shard: ShardProcess) -> Api:
    root = Api(shard, "root")
    return root.at(workspace_under(root, type_="universal"))


def several(api: Api) -> list[Api]:
    """The same user on connections of their own, which the workers share."""
    return [api.at(api.cluster) for _ in range(CONNECTIONS)]


def test_each_worker_acts_by_the_policies_of_the_moment(api: Api) -> None:
    clients = several(api)
    Policies(api).deny("p", {"expression": "object.metadata.name != 'bad'", "message": "first"})
    for client in clients:
        assert client.post(CONFIGMAPS, configmap("bad"), expect=422).message.endswith(denial("p", "first"))
    changed = [{"expression": "object.metadata.name != 'bad'", "message": "second"}]
    api.patch(f"{POLICIES}/p", {"spec": {"validations": changed}})
    for client in clients:
        assert client.post(CONFIGMAPS, configmap("bad"), expect=422).message.endswith(denial("p", "second"))
    api.delete(f"{POLICIES}/p")
    for number, client in enumerate(clients):
        client.post(CONFIGMAPS, configmap(f"good-{number}"))
    for client in clients:
        client.close()


def test_a_long_policy_is_compiled_in_each_worker_without_an_error(api: Api) -> None:
    long = " && ".join(f"object.data.a != 'value-{number}'" for number in range(400))
    Policies(api).deny("p", *[long] * 4)
    for number, client in enumerate(several(api)):
        client.post(CONFIGMAPS, configmap(f"good-{number}", {"a": "good"}))
        client.post(CONFIGMAPS, configmap(f"bad-{number}", {"a": "value-399"}), expect=422)
        client.close()
