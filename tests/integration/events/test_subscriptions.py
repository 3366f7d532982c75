"""Subscriptions over the wire: a shard that decides, a nats-server that delivers, plain clients that read."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from atoll.machinery.stream.permissions import KICK_SUBJECT
from harness.clients.api import CRDS, Api, Object, configmap, crd, define, eventually, workspace_under
from harness.clients.exports import an_object, bind, cluster_of, identity_of, make_export, objects_path, schema
from harness.clients.followed_events import follow
from harness.clients.followed_events import path as follow_path
from harness.servers.stand_ins.oidc_issuer import Issuer
from harness.servers.subscribed_shard import Reader, SubscribedShard, path
from integration.identity.test_oidc import OWN, Tenant
from integration.views.test_apiexport import ENTER, RBAC, give

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
WATCH = {"apiGroups": [""], "resources": ["configmaps", "secrets", "events"], "verbs": ["watch"]}
AUDIT = {"name": "audit", "resources": ["configmaps"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shard(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SubscribedShard]:
    flags = ("--egress-allow-cidr", "127.0.0.0/8")
    async with SubscribedShard(tmp_path_factory.mktemp("subscribed"), *flags) as shard:
        yield shard


@pytest.fixture
def workspace(shard: SubscribedShard) -> Api:
    """The administrator in a new workspace."""
    return shard.admin.at(workspace_under(shard.admin, type_="universal"))


def subscribe(api: Api, cluster: str, expect: int = 201, **content: object) -> Object:
    return dict(api.send("POST", path(cluster), {**AUDIT, **content}, expect=expect).json)


def subject(event: Msg) -> str:
    """The key of the object that an event is about."""
    return str((event.headers or {})["ce-subject"])


def claims_of(token: str) -> Object:
    """The claims of a token, unverified."""
    part = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


async def hears(reader: Reader) -> asyncio.Queue[Object]:
    """What a client hears at its control subject from now on."""
    heard: asyncio.Queue[Object] = asyncio.Queue()

    async def take(message: Msg) -> None:
        await heard.put(json.loads(message.data))

    await reader.client.subscribe(reader.subscription["control"], cb=take)
    await reader.client.flush()
    return heard


async def test_events_come_while_the_right_is_held_and_again_once_it_is_back(
    shard: SubscribedShard, workspace: Api
) -> None:
    alice = shard.user("alice")
    name = give(workspace, "alice", WATCH, ENTER)
    made = subscribe(alice, workspace.cluster)
    assert (made["state"], made["cluster"]) == ("Active", cluster_of(workspace))
    reader = await shard.reader(made, ":alice")
    heard = await hears(reader)
    kicked: asyncio.Queue[Object] = asyncio.Queue()

    async def kick(message: Msg) -> None:
        kicked.put_nowait(json.loads(message.data))

    await shard.server.gateway.subscribe(KICK_SUBJECT, kick)
    await shard.server.settle()
    workspace.post(CONFIGMAPS, configmap("one"))
    (event,) = await reader.next()
    assert ((event.headers or {})["Atoll-Operation"], event.data) == ("ADDED", b"")
    workspace.delete(f"{RBAC}/clusterrolebindings/{name}")
    told = await asyncio.wait_for(heard.get(), 60)
    assert (told["state"], told["subscription"]) == ("Revoked", "audit")
    # A pull that waits at the deleted consumer would hear nothing of it.
    assert await asyncio.wait_for(kicked.get(), 60) == {"identity": ":alice"}
    assert made["consumer"] not in await shard.consumers()
    shown = alice.get(path(workspace.cluster, "audit")).json
    assert shown["state"] == "Revoked" and "configmaps" in shown["reason"]
    workspace.post(CONFIGMAPS, configmap("two"))
    give(workspace, "alice", WATCH, ENTER)
    assert (await asyncio.wait_for(heard.get(), 60))["state"] == "Active"
    (event,) = await reader.next()
    assert subject(event).endswith("/two")
    await reader.close()


async def test_a_subscription_is_found_again_listed_and_removed_by_its_owner_alone(
    shard: SubscribedShard, workspace: Api
) -> None:
    alice, bob = shard.user("alice"), shard.user("bob")
    for name in ("alice", "bob"):
        give(workspace, name, WATCH, ENTER)
    here = workspace.cluster
    made = subscribe(alice, here)
    again = subscribe(alice, here, expect=200, since="5m")
    assert {**again, "lag": made["lag"]} == made
    subscribe(alice, here, expect=409, resources=["secrets"])
    other = subscribe(bob, here)
    assert other["consumer"] != made["consumer"] and other["inboxPrefix"] != made["inboxPrefix"]
    names = [each["name"] for each in alice.get(path(cluster_of(workspace))).json["items"]]
    assert names == ["audit"]
    bob.delete(path(here, "audit"))
    assert bob.get(path(here)).json == {"items": []}
    assert alice.get(path(here, "audit")).json["state"] == "Active"
    alice.delete(path(here, "audit"))
    alice.get(path(here, "audit"), expect=404)
    assert made["consumer"] not in await shard.consumers()


#: What is asked for, the code, and a part of the message.
REFUSED: list[tuple[Object | bytes, int, str]] = [
    ({**AUDIT, "resources": ["*"]}, 422, "resources"),
    ({**AUDIT, "resources": []}, 422, "resources"),
    ({**AUDIT, "name": "a.b"}, 422, "name"),
    ({**AUDIT, "more": 1}, 422, "more"),
    ({**AUDIT, "resources": ["leases.coordination.k8s.io"]}, 422, "not on the stream"),
    ({**AUDIT, "resources": ["configmaps", "events"]}, 422, "not on the stream"),
    ({**AUDIT, "resources": ["services"]}, 403, "whole workspace"),
    ({**AUDIT, "identity": "3f" * 32}, 403, "apiexports/content"),
    (b"{", 400, "JSON"),
    (b" " * 70_000, 413, "65536"),
]


@pytest.mark.parametrize(("body", "code", "text"), REFUSED, ids=lambda value: str(value)[:60])
async def test_what_cannot_be_delivered_is_refused_with_the_reason_and_leaves_nothing(
    shard: SubscribedShard, refusing: tuple[Api, str], body: Object | bytes, code: int, text: str
) -> None:
    alice, cluster = refusing
    assert text in alice.send("POST", path(cluster), body, expect=code).message
    assert alice.get(path(cluster)).json == {"items": []}


@pytest.fixture(scope="module")
def refusing(shard: SubscribedShard) -> tuple[Api, str]:
    """A user who may watch ConfigMaps, Leases and Events in a workspace, which is beside."""
    workspace = shard.admin.at(workspace_under(shard.admin, type_="universal"))
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["watch"]}
    give(workspace, "alice", WATCH, leases, ENTER)
    return shard.user("alice"), workspace.cluster


async def test_narrower_readers_are_refused_and_what_else_they_may_read_is_delivered(
    shard: SubscribedShard, workspace: Api
) -> None:
    alice = shard.user("alice")
    named = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"], "verbs": ["watch"]}
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["watch"]}
    give(workspace, "alice", named, secrets, ENTER)
    role = {"metadata": {"name": "narrow"}, "rules": [{**named, "resourceNames": []}]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "narrow"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]
    within = f"{RBAC}/namespaces/default"
    workspace.post(f"{within}/roles", role)
    workspace.post(f"{within}/rolebindings", {"metadata": {"name": "n"}, "roleRef": reference, "subjects": subjects})
    assert "whole workspace" in alice.send("POST", path(workspace.cluster), AUDIT, expect=403).message
    made = subscribe(alice, workspace.cluster, resources=["configmaps", "secrets", "gadgets.example.com"], full=True)
    assert [(each["resource"], each["full"]) for each in made["resources"]] == [("secrets", False)]
    assert [(each["resource"], each["reason"]) for each in made["refused"]] == [
        ("configmaps", "Forbidden"),
        ("gadgets", "Forbidden"),
    ]
    (config,) = [each["config"] for name, each in (await shard.consumers()).items() if name == made["consumer"]]
    assert config["headers_only"] is True
    assert config["filter_subjects"] == [*made["streams"][0]["filters"]]
    assert [each.split(".")[-2:] for each in config["filter_subjects"]] == [
        ["secrets", cluster_of(workspace)],
        ["root", "-"],
    ]


async def test_nobody_learns_of_a_workspace_by_asking_and_the_anonymous_are_refused(
    shard: SubscribedShard, workspace: Api
) -> None:
    there, nowhere = workspace.cluster, "root:no-such-workspace"
    bob, anonymous = shard.user("bob"), Api(shard.process, "", "")
    for method, end in (("POST", ""), ("GET", ""), ("GET", "/audit"), ("DELETE", "/audit")):
        answers = [bob.send(method, path(each) + end, AUDIT if method == "POST" else None) for each in (there, nowhere)]
        assert answers[0].code == answers[1].code
        assert answers[0].body == answers[1].body
        assert anonymous.send(method, path(there) + end, AUDIT if method == "POST" else None).code in (401, 403)
    tokens = [bob.send("POST", path(each).replace("subscriptions", "token")) for each in (there, nowhere)]
    assert [(each.code, each.body) for each in tokens] == [(403, tokens[0].body)] * 2
    assert anonymous.send("POST", path(there).replace("subscriptions", "token")).code in (401, 403)
    give(workspace, "alice", ENTER)
    for method, end, code in (("PUT", "subscriptions", 405), ("GET", "token", 405), ("GET", "others", 404)):
        url = path(there).replace("subscriptions", end)
        assert [shard.user(name).send(method, url).code for name in ("bob", "alice")] == [403, code]


async def test_a_token_names_its_user_and_is_of_no_use_at_the_api(shard: SubscribedShard, workspace: Api) -> None:
    give(workspace, "alice", WATCH, ENTER)
    answer = shard.user("alice").post(path(workspace.cluster).replace("subscriptions", "token"), {})
    token = answer.json["token"]
    claims = claims_of(token)
    assert (claims["iss"], claims["aud"], claims["sub"]) == ("atoll-events", ["events"], "alice")
    assert claims["exp"] - claims["iat"] == 900
    Api(shard.process, workspace.cluster, "", token).get("/api", expect=401)


async def test_the_users_of_a_workspaces_own_issuer_have_its_events_and_nothing_of_another_workspace(
    shard: SubscribedShard,
) -> None:
    with Issuer() as issuer, Issuer() as other:
        here, beside = Tenant(shard.admin, issuer), Tenant(shard.admin, other)
        dora, namesake = (
            Api(shard.process, "", "", each.token(sub="dora", aud=["tenant", OWN])) for each in (issuer, other)
        )
        for each in (here, beside):
            give(each.inside, "dora", WATCH, ENTER)
        made = subscribe(dora, here.inside.cluster)
        assert made["cluster"] == here.cluster
        of_namesake = subscribe(namesake, beside.cluster)
        assert not {made["consumer"], made["inboxPrefix"]} & {of_namesake["consumer"], of_namesake["inboxPrefix"]}
        reader = await shard.reader(made, f"{here.cluster}:dora")
        with follow(dora, follow_path(here.cluster, "configmaps")) as followed:
            for each in (beside, here):
                each.inside.post(CONFIGMAPS, configmap(each.home.cluster.rpartition(":")[2]))
            (event,), (line,) = await reader.next(), followed.changes(1)
        assert subject(event) == line["subject"] and subject(event).startswith(f"{here.cluster}/")
        for caller, elsewhere in ((dora, beside), (namesake, here)):
            url = path(elsewhere.cluster)
            for method, end in (("POST", ""), ("GET", ""), ("GET", "/audit"), ("DELETE", "/audit")):
                caller.send(method, url + end, AUDIT if method == "POST" else None, expect=401)
            caller.send("POST", url.replace("subscriptions", "token"), expect=401)
            caller.get(follow_path(elsewhere.cluster, "configmaps"), expect=401)
        # Of a user of one workspace alone, a token for NATS says which.
        token = dora.post(path(here.cluster).replace("subscriptions", "token"), {}).json["token"]
        assert (claims_of(token)["sub"], claims_of(token)["atoll.dev/cluster"]) == ("dora", here.cluster)
        await reader.close()


async def test_full_events_have_the_object_and_a_deleted_workspace_is_gone(
    shard: SubscribedShard, workspace: Api
) -> None:
    alice, cluster = shard.user("alice"), cluster_of(workspace)
    give(workspace, "alice", WATCH, ENTER)
    made = subscribe(alice, workspace.cluster, full=True, since="1h")
    reader = await shard.reader(made, ":alice")
    heard = await hears(reader)
    workspace.post(CONFIGMAPS, configmap("one", {"a": "b"}))
    found = await reader.next()
    while not subject(found[-1]).endswith("/one"):
        found = await reader.next()
    assert json.loads(found[-1].data)["data"] == {"a": "b"}
    parent, _, name = workspace.cluster.rpartition(":")
    shard.admin.at(parent).delete(f"/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}")
    states = [(await asyncio.wait_for(heard.get(), 60))["state"]]
    while states[-1] != "Gone":
        states.append((await asyncio.wait_for(heard.get(), 60))["state"])
    assert alice.get(path(cluster, "audit")).json["state"] == "Gone"
    assert made["consumer"] not in await shard.consumers()
    alice.delete(path(cluster, "audit"))
    await reader.close()


async def test_the_owner_of_an_identity_has_its_resources_of_all_workspaces_and_no_claimed_ones(
    shard: SubscribedShard, workspace: Api
) -> None:
    circles = schema("circles", "events.example.com")
    make_export(workspace, "shapes", circles)
    consumer = shard.admin.at(workspace_under(shard.admin, type_="universal"))
    bind(consumer, workspace.cluster, "shapes")
    identity, alice = identity_of(workspace, "shapes"), shard.user("alice")
    content = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "verbs": ["watch"]}
    wanted = {"name": "all", "resources": ["circles.events.example.com", "configmaps"], "identity": identity}
    give(workspace, "alice", ENTER)
    alice.send("POST", path(workspace.cluster), wanted, expect=403)
    name = give(workspace, "alice", content)
    made = dict(alice.post(path(workspace.cluster), wanted).json)
    assert [(each["resource"], each["reason"]) for each in made["refused"]] == [("configmaps", "NotOfExport")]
    assert made["streams"][0]["filters"][0].endswith(f"{identity}.events_example_com.circles.*")
    reader = await shard.reader(made, ":alice")
    consumer.post(objects_path(circles), an_object(circles, "round"))
    (event,) = await reader.next()
    assert subject(event).startswith(cluster_of(consumer))
    heard = await hears(reader)
    workspace.delete(f"{RBAC}/clusterrolebindings/{name}")
    assert (await asyncio.wait_for(heard.get(), 60))["state"] == "Revoked"
    assert made["consumer"] not in await shard.consumers()
    await reader.close()


async def test_a_provider_limits_what_subscribers_in_a_consumers_workspace_hear(
    shard: SubscribedShard, workspace: Api
) -> None:
    circles, alice = schema("circles", "events.example.com"), shard.user("alice")
    make_export(workspace, "shapes", circles, maximalPermissionPolicy={"local": {}})
    consumer = shard.admin.at(workspace_under(shard.admin, type_="universal"))
    limit = {"apiGroups": ["events.example.com"], "resources": ["circles"], "verbs": ["*"]}
    everybody = give(workspace, "apis.kcp.io:binding:system:authenticated", limit, subject="Group")
    bind(consumer, workspace.cluster, "shapes")
    give(consumer, "alice", limit, ENTER)
    made = subscribe(alice, consumer.cluster, resources=["circles.events.example.com"])
    reader = await shard.reader(made, ":alice")
    heard = await hears(reader)
    workspace.delete(f"{RBAC}/clusterrolebindings/{everybody}")
    assert (await asyncio.wait_for(heard.get(), 60))["state"] == "Revoked"
    assert made["consumer"] not in await shard.consumers()
    await reader.close()


async def test_an_account_that_is_deleted_is_silent_and_another_of_its_name_gets_nothing_of_it(
    shard: SubscribedShard, workspace: Api
) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
    give(workspace, "system:serviceaccount:default:reader", WATCH)

    def made() -> Api:
        workspace.post(accounts, account)
        token = workspace.post(f"{accounts}/reader/token", {"spec": {}}).json["status"]["token"]
        return Api(shard.process, "", "", token)

    first = made()
    subscription = subscribe(first, workspace.cluster)
    reader = await shard.reader(subscription, f"{cluster_of(workspace)}:system:serviceaccount:default:reader")
    heard = await hears(reader)
    workspace.delete(f"{accounts}/reader")
    told = await asyncio.wait_for(heard.get(), 60)
    assert (told["state"], "account" in told["reason"]) == ("Revoked", True)
    assert subscription["consumer"] not in await shard.consumers()
    first.get(path(workspace.cluster, "audit"), expect=401)
    second = made()
    second.get(path(workspace.cluster, "audit"), expect=404)
    assert subscription["consumer"] not in await shard.consumers()
    await reader.close()


@pytest.mark.parametrize("where", ["system:admin", "definition"])
async def test_a_right_in_all_workspaces_and_a_definition_count_for_as_long_as_they_are_there(
    shard: SubscribedShard, workspace: Api, where: str
) -> None:
    widgets = crd("widgets", f"{where.replace(':', '-')}.example.com")
    define(workspace, widgets)
    resource = f"widgets.{widgets['spec']['group']}"
    rule = {"apiGroups": [widgets["spec"]["group"]], "resources": ["widgets"], "verbs": ["watch"]}
    master = Api(shard.process, "system:admin", "shard-admin")
    giver = master if where == "system:admin" else workspace
    name, bob = give(giver, "bob", rule, ENTER), shard.user("bob")
    made = subscribe(bob, workspace.cluster, resources=[resource])
    assert made["consumer"] in await shard.consumers()
    if where == "system:admin":
        master.delete(f"{RBAC}/clusterrolebindings/{name}")
    else:
        workspace.delete(f"{CRDS}/{widgets['metadata']['name']}")
    eventually(lambda: bob.get(path(workspace.cluster, "audit")).json["state"] == "Revoked", "it is revoked")
    await shard.until_absent(made["consumer"])


@pytest.mark.long
async def test_while_a_workspace_is_inactive_nothing_of_it_is_delivered(shard: SubscribedShard, workspace: Api) -> None:
    alice, master = shard.user("alice"), Api(shard.process, workspace.cluster, "shard-admin")
    give(workspace, "alice", WATCH, ENTER)
    made = subscribe(alice, workspace.cluster)
    reader = await shard.reader(made, ":alice")
    heard = await hears(reader)
    cluster = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
    for value, state in (("true", "Revoked"), (None, "Active")):
        master.patch(cluster, {"metadata": {"annotations": {"core.kcp.io/inactive": value}}})
        told = await asyncio.wait_for(heard.get(), 60)
        assert told["state"] == state
        assert (made["consumer"] in await shard.consumers()) == (state == "Active")
    await reader.close()


@pytest.mark.long
async def test_a_subscription_goes_on_where_its_subscriber_was_after_a_restart_and_a_lost_consumer(
    shard: SubscribedShard, workspace: Api
) -> None:
    alice = shard.user("alice")
    give(workspace, "alice", WATCH, ENTER)
    made = subscribe(alice, workspace.cluster)
    reader = await shard.reader(made, ":alice")
    for name in ("one", "two"):
        workspace.post(CONFIGMAPS, configmap(name))
    assert [subject(each).rsplit("/")[-1] for each in await reader.next(2)] == ["one", "two"]
    shard.process.stop()
    await shard.lose(made["consumer"])
    shard.process.start()
    assert alice.get(path(workspace.cluster, "audit")).json["streams"] == made["streams"]
    workspace.post(CONFIGMAPS, configmap("three"))
    await shard.until_present(made["consumer"])
    names = [subject((await reader.next())[0]).rsplit("/")[-1]]
    while names[-1] != "three":
        names += [subject((await reader.next())[0]).rsplit("/")[-1]]
    await reader.close()
