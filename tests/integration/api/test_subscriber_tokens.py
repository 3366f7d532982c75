"""A service account's token for events: the embedded NATS server takes it, and the API does not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from atoll.machinery.stream.tenants.key_files import read_subscription_keys
from harness.clients.api import Api, eventually
from harness.servers.shard_process import ShardProcess
from harness.servers.tenant_server import RawClient
from harness.waits import until

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def requested(api: Api, *audiences: str) -> str:
    spec = {"audiences": list(audiences)} if audiences else {}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(api.post(f"{ACCOUNTS}/default/token", body).json["status"]["token"])


async def test_nats_takes_a_token_for_events_alone_and_the_api_every_other(shard: ShardProcess, api: Api) -> None:
    eventually(lambda: api.get(f"{ACCOUNTS}/default", expect=0).code == 200, "the account is there")
    file: Path = shard.root / "event-subscriptions.json"
    eventually(file.exists, "the address of the server is written", 60.0)
    (address,) = read_subscription_keys(file).servers
    of_events, of_the_api = requested(api, "events"), requested(api)

    async def let_in() -> bool:
        try:
            (await RawClient.open(address, auth_token=of_events)).close()
        except ConnectionError:
            return False
        return True

    await until(let_in, "the subscriber is let in", 60.0)
    for token in (of_the_api, shard.token(), ""):
        with pytest.raises(ConnectionError):
            await RawClient.open(address, auth_token=token)
    for token, code in ((of_events, 401), (of_the_api, 403)):
        with closing(Api(shard, api.cluster, token=token)) as account:
            account.get("/api/v1/namespaces", expect=code)
