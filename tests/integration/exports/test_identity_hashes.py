"""A hash gives no access: a caller with an identity hash can neither read by it, nor write it into fields that the
system trusts.

Each test of a guard fails when the guard is removed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import APPLY, MERGE, PARTIAL_LIST, Answer, Api, Object, eventually, workspace_under
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    PATIENCE_S,
    SECRETS,
    SLICES,
    accepted,
    an_object,
    bind,
    binding,
    claim,
    cluster_of,
    condition,
    export,
    identity_of,
    make_export,
    schema,
    unbind,
    wait_condition,
)
from harness.clients.nats_subscriber import Operator
from harness.clients.tenants import allow, user
from harness.clients.tenants import bind as bind_role
from harness.servers.mutant_shard import patched
from harness.servers.shard_process import ShardProcess, process_of

STATUSES: dict[str, Object] = {
    "apiexports": {"identityHash": "0" * 64, "conditions": []},
    "apibindings": {"phase": "Binding", "apiExportClusterName": "root", "boundResources": []},
}
UNGUARDED = """
import atoll.machinery.apiserver.serving.pipeline as pipeline
import atoll.shard.admission.endpointslices as endpoints
import atoll.shard.admission.export_identities as identities
pipeline.RequestPipeline.check_identity = lambda self, request: None
identities.ExportIdentities.validate = lambda self, review: None
endpoints.EndpointSlices.validate = lambda self, review: None
"""
#: A group of this test alone: one test defines circles, and a wildcard request finds them in all workspaces.
CIRCLES = schema("circles", "rivals.example.com")
GROUP = "/apis/rivals.example.com/v1"
ITEMS = f"{GROUP}/namespaces/default/circles"


def forms(identity: str, cluster: str) -> Iterator[tuple[str, str]]:
    """Method and path of requests that name an identity, in every form of URL."""
    for named in (f"circles:{identity}", f"circles%3A{identity}", f"circles%3a{identity}", f"%63ircles:{identity}"):
        for place in (cluster, "*"):
            prefix = f"/clusters/{place}{GROUP}"
            short = "timeoutSeconds=1"
            for path in (named, f"namespaces/default/{named}", f"watch/{named}?{short}", f"{named}?watch=1&{short}"):
                yield "GET", f"{prefix}/{path}"
            one = f"{prefix}/namespaces/default/{named}/secret-one"
            yield from ((method, one) for method in ("GET", "PUT", "PATCH", "DELETE"))
            yield from ((method, f"{one}/{sub}") for sub in ("status", "scale") for method in ("GET", "PATCH"))
            yield from ((method, f"{prefix}/namespaces/default/{named}") for method in ("POST", "DELETE"))
    # Empty, wrong, of a kind that has none, without a cluster, and through the views.
    yield "GET", f"/clusters/*{GROUP}/circles:"
    yield "GET", f"/clusters/{cluster}{GROUP}/circles:"
    yield "GET", f"/clusters/{cluster}{GROUP}/circles:{'0' * 64}"
    yield "GET", f"/clusters/{cluster}/api/v1/configmaps:core"
    yield "GET", f"/clusters/{cluster}/api/v1/namespaces:core/default"
    yield "GET", f"{GROUP}/circles:{identity}"
    for view in ("initializingworkspaces/root:universal", "terminatingworkspaces/root:universal"):
        for place in (cluster, "*"):
            yield "GET", f"/services/{view}/clusters/{place}{GROUP}/circles:{identity}"
    for place in (cluster, "*"):
        yield "GET", f"/services/apiexport/{cluster}/shapes/clusters/{place}{GROUP}/circles:{identity}"


def ask(api: Api, method: str, path: str, **headers: str) -> Answer:
    body: Object | None = {} if method in {"POST", "PUT", "PATCH"} else None
    return api.send(method, path, body, kind=MERGE if method == "PATCH" else "", headers=headers)


class Stage:
    """A provider's export that a consumer has bound, with an object; `alice` administers both workspaces."""

    def __init__(self, root: Api) -> None:
        self.root = root
        self.provider, self.consumer = (root.at(workspace_under(root, type_="universal")) for _ in range(2))
        self.identity = str(make_export(self.provider, "shapes", CIRCLES)["status"]["identityHash"])
        for api in (self.provider, self.consumer):
            bind(api, self.provider.cluster, "shapes")
            bind_role(api, "cluster-admin", user("alice"))
            api.post(ITEMS, an_object(CIRCLES, "secret-one", spec={"colour": "red"}))
        everything = {"apiGroups": ["*"], "resources": ["*", f"circles:{self.identity}"], "verbs": ["*"]}
        allow(self.provider, "by-name", "alice", **everything)

    def anywhere(self, token: str) -> Api:
        return Api(self.root.shard, "", token=token)

    def let_in(self, api: Api) -> list[str]:
        """The requests of a caller that succeed, in any workspace."""
        found = []
        for cluster, paths in ((cluster_of(self.provider), True), (self.consumer.cluster, False)):
            for method, path in forms(self.identity, cluster):
                # Views accept only names of clusters.
                answer = ask(api, method, path) if paths or "/services/" not in path else None
                if answer is not None and answer.code != 403:
                    found.append(f"{method} {path}: {answer.code}")
        return found


@pytest.fixture(scope="module")
def stage(admin: Api) -> Stage:
    return Stage(admin)


@pytest.mark.parametrize("who", ["kcp-admin", "alice", "nobody", "anonymous"])
def test_nobody_but_masters_says_a_hash(stage: Stage, who: str) -> None:
    tokens = {"kcp-admin": stage.root.token, "alice": "alice-token", "nobody": "nobody-token"}
    caller = stage.anywhere(tokens[who]) if who in tokens else Api(stage.root.shard, user="")
    assert stage.let_in(caller) == []


def test_what_may_be_done_without_a_hash_is_refused_with_one_and_told_alike(stage: Stage) -> None:
    alice = stage.anywhere("alice-token")
    plain = f"/clusters/{stage.consumer.cluster}{ITEMS}"
    assert alice.get(f"{plain}/secret-one").json["metadata"]["name"] == "secret-one"
    said = []
    for identity in (stage.identity, "0" * 64):
        answer = alice.get(f"{plain}:{identity}/secret-one", expect=403)
        said.append(answer.message)
        # The answer does not reveal whether a workspace exists, either.
        said.extend(
            alice.get(f"/clusters/{place}{ITEMS}:{identity}/secret-one", expect=403).message
            for place in ("root:nowhere", stage.root.cluster)
        )
    assert len(set(said)) == 1, said


def test_masters_do_and_as_somebody_else_they_do_not(stage: Stage, master: Api) -> None:
    anywhere = stage.anywhere(master.token)
    wildcard = f"/clusters/*{GROUP}/circles:{stage.identity}"
    found = anywhere.get(wildcard).json["items"]
    assert {each["metadata"]["annotations"]["kcp.io/cluster"] for each in found} == {
        cluster_of(stage.provider),
        cluster_of(stage.consumer),
    }
    anywhere.get(f"/clusters/{stage.consumer.cluster}{ITEMS}:{stage.identity}/secret-one")
    anywhere.get(f"/clusters/{stage.consumer.cluster}{ITEMS}:{'0' * 64}/secret-one", expect=404)
    anywhere.get(f"/clusters/*/api/v1/configmaps:{stage.identity}", expect=404)
    for group in ("system:kcp:admin", "system:authenticated"):
        headers = {"Impersonate-User": "helper", "Impersonate-Group": group}
        assert ask(anywhere, "GET", wildcard, **headers).code == 403
    admin = stage.anywhere(stage.root.token)
    borrowed = {"Impersonate-User": "helper", "Impersonate-Group": "system:masters"}
    assert ask(admin, "GET", wildcard, **borrowed).code == 403


@pytest.mark.long
def test_taken_out_each_guard_is_missed(tmp_path: Path) -> None:
    """No guard covers for another: one shard without any of them fails for each."""
    (tmp_path / "tokens.csv").write_text("alice-token,alice,u-alice\nbob-token,bob,u-bob\n")
    flags = ("--token-auth-file", str(tmp_path / "tokens.csv"))
    with ShardProcess(tmp_path / "there", *flags, environment=patched(tmp_path, UNGUARDED)) as shard:
        stage = Stage(Api(shard, "root"))
        alice, cluster = stage.anywhere("alice-token"), cluster_of(stage.consumer)
        for method, path in forms(stage.identity, cluster):
            if method == "GET" and path.endswith("/secret-one") and cluster in path:
                assert alice.get(path).json["spec"] == {"colour": "red", "size": 7}, path
        allow(stage.provider, "enters", "bob", nonResourceURLs=["/"], verbs=["access"])
        allow(
            stage.provider,
            "exports",
            "bob",
            apiGroups=["apis.kcp.io"],
            verbs=["create", "get"],
            resources=["apiexports", "apiexportendpointslices"],
        )
        bob = Api(shard, stage.provider.cluster, token="bob-token")
        bob.post(EXPORTS, export("stolen", identity={"secretRef": {"name": "shapes", "namespace": "kcp-system"}}))
        found = wait_condition(bob, f"{EXPORTS}/stolen", "IdentityValid")
        assert found["status"]["identityHash"] == stage.identity
        where = {"spec": {"export": {"name": "shapes"}}, "metadata": {"name": "where"}}
        bob.post(SLICES, {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice", **where})


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
@pytest.mark.parametrize("kind", ["apiexports", "apibindings"])
@pytest.mark.parametrize("who", ["alice", "kcp-admin"])
def test_the_statuses_in_which_hashes_stand_are_nobodys_to_read_or_write(
    stage: Stage, who: str, kind: str, version: str
) -> None:
    token = "alice-token" if who == "alice" else stage.root.token
    api = Api(stage.root.shard, stage.provider.cluster, token=token)
    plain = f"/apis/apis.kcp.io/{version}/{kind}/shapes"
    before = api.get(plain).json
    api.get(f"{plain}/status", expect=403)
    status = STATUSES[kind]
    whole = {**before, "status": status}
    for method, body, media in (
        ("PUT", whole, ""),
        ("PATCH", {"status": status}, MERGE),
        ("DELETE", None, ""),
        ("POST", whole, ""),
    ):
        assert api.send(method, f"{plain}/status", body, kind=media).code == 403, method
    applied = {"apiVersion": before["apiVersion"], "kind": before["kind"], "metadata": {"name": "shapes"}}
    document = json.dumps({**applied, "status": status}).encode()
    assert api.send("PATCH", f"{plain}/status?fieldManager=me&force=true", document, kind=APPLY).code == 403
    # Outside the status subresource a status is ignored.
    assert api.put(plain, whole).json["status"] == before["status"]
    assert api.patch(plain, {"status": status}).json["status"] == before["status"]
    assert api.patch(f"{plain}?fieldManager=me&force=true", document, APPLY).json["status"] == before["status"]


def test_a_hash_brought_along_at_creation_is_not_believed(stage: Stage, provider: Api) -> None:
    thief = {**export("mine"), "status": {"identityHash": stage.identity, "conditions": []}}
    assert "identityHash" not in provider.post(EXPORTS, thief).json.get("status", {})
    found = wait_condition(provider, f"{EXPORTS}/mine", "IdentityValid")
    assert found["status"]["identityHash"] != stage.identity
    bound = {
        "group": "rivals.example.com",
        "resource": "circles",
        "storageVersions": ["v1"],
        "schema": {"name": CIRCLES["metadata"]["name"], "UID": "x", "identityHash": stage.identity},
    }
    made = {**binding(provider.cluster, "mine"), "status": {"phase": "Bound", "boundResources": [bound]}}
    provider.post(BINDINGS, made)
    found = wait_condition(provider, f"{BINDINGS}/mine", "InitialBindingCompleted")
    assert stage.identity not in json.dumps(found)
    provider.get(ITEMS, expect=404)


def test_a_claim_that_names_a_stolen_hash_shows_what_its_owners_consent_to_and_no_more(
    stage: Stage, provider: Api
) -> None:
    """The thief's own workspace consents; the victim's, which has bound both exports, does not."""
    claimed = claim("circles", "rivals.example.com", identity=stage.identity)
    make_export(provider, "bait", schema("squares"), claims=[claimed])
    bind(provider, stage.provider.cluster, "shapes")
    bind(provider, provider.cluster, "bait", [accepted(claimed)])
    bind_role(provider, "cluster-admin", user("alice"))
    provider.post(ITEMS, an_object(CIRCLES, "own"))
    alice, view = stage.anywhere("alice-token"), f"/services/apiexport/{cluster_of(provider)}/bait/clusters"

    def everywhere() -> list[str]:
        return [each["metadata"]["name"] for each in alice.get(f"{view}/*{GROUP}/circles").json["items"]]

    eventually(lambda: everywhere() == ["own"], "its own object is claimed", PATIENCE_S)
    victim = cluster_of(stage.consumer)
    alice.get(f"{view}/{victim}{ITEMS}/secret-one", expect=403)
    for answer in ([], [accepted(claimed, "Rejected")]):
        bind(stage.consumer, provider.cluster, "bait", answer)
        alice.get(f"{view}/{victim}{ITEMS}/secret-one", expect=403)
        alice.get(f"{view}/{victim}{ITEMS}", expect=403)
        assert everywhere() == ["own"]
        unbind(stage.consumer, "bait")


class Rivals:
    """Two exports of one group and resource: two providers, and a consumer of each with an object of one name."""

    def __init__(self, root: Api) -> None:
        self.identities, self.consumers, self.providers = [], [], []
        for colour in ("red", "blue"):
            provider, consumer = (root.at(workspace_under(root, type_="universal")) for _ in range(2))
            made = make_export(provider, "shapes", CIRCLES)
            bind(consumer, provider.cluster, "shapes")
            consumer.post(ITEMS, an_object(CIRCLES, "one", spec={"colour": colour}))
            self.identities.append(str(made["status"]["identityHash"]))
            self.consumers.append(consumer)
            self.providers.append(provider)


@pytest.fixture(scope="module")
def rivals(admin: Api) -> Rivals:
    return Rivals(admin)


def seen(found: Object) -> list[tuple[str, str]]:
    """Cluster and colour of each item."""
    return [(each["metadata"]["annotations"]["kcp.io/cluster"], each["spec"]["colour"]) for each in found["items"]]


def test_two_exports_of_one_kind_never_see_each_other_in_lists_and_watches(rivals: Rivals, master: Api) -> None:
    anywhere = master.at("*")
    first, second = rivals.identities
    assert first != second
    for number, colour in enumerate(("red", "blue")):
        mine = [(cluster_of(rivals.consumers[number]), colour)]
        path = f"{GROUP}/circles:{rivals.identities[number]}"
        listed = anywhere.get(path).json
        assert seen(listed) == seen(rivals.consumers[number].get(ITEMS).json) == mine
        partial = anywhere.get(path, accept=PARTIAL_LIST).json["items"]
        assert [each["metadata"]["annotations"]["kcp.io/cluster"] for each in partial] == [mine[0][0]]
        other = rivals.consumers[1 - number]
        revision = listed["metadata"]["resourceVersion"]
        with anywhere.watch(f"{path}?watch=1&resourceVersion={revision}") as events:
            name = f"late-{number}"
            other.post(ITEMS, an_object(CIRCLES, name, spec={"colour": "green"}))
            rivals.consumers[number].post(ITEMS, an_object(CIRCLES, name, spec={"colour": colour}))
            event = events.next()
            assert (event.name, event.object["spec"]["colour"]) == (name, colour)
        for api in rivals.consumers:
            api.delete(f"{ITEMS}/{name}")
    # Without an identity a wildcard shows no objects, and the metadata of both.
    anywhere.get(f"{GROUP}/circles", expect=404)
    partial = anywhere.get(f"{GROUP}/circles", accept=PARTIAL_LIST).json["items"]
    found = {each["metadata"]["annotations"]["kcp.io/cluster"] for each in partial}
    assert found >= {cluster_of(consumer) for consumer in rivals.consumers}


def test_two_exports_of_one_kind_never_see_each_other_through_their_views(rivals: Rivals, admin: Api) -> None:
    anywhere = Api(admin.shard, token=admin.token)
    for number, colour in enumerate(("red", "blue")):
        view = f"/services/apiexport/{cluster_of(rivals.providers[number])}/shapes/clusters"
        mine, other = cluster_of(rivals.consumers[number]), cluster_of(rivals.consumers[1 - number])
        assert seen(anywhere.get(f"{view}/*{GROUP}/circles").json) == [(mine, colour)]
        assert seen(anywhere.get(f"{view}/{mine}{ITEMS}").json) == [(mine, colour)]
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            assert ask(anywhere, method, f"{view}/{other}{ITEMS}/one").code == 403, method


async def test_two_exports_of_one_kind_never_see_each_other_on_the_stream(rivals: Rivals) -> None:
    first, second = rivals.consumers
    for api in (second, first):
        api.post(ITEMS, an_object(CIRCLES, "heard", spec={"colour": "green"}))
    async with Operator(process_of(first)) as operator:
        await operator.consume(f"atoll.changes.root.{rivals.identities[0]}.>")
        heard = await operator.until("heard")
    mine = cluster_of(first)
    assert {change.subject for change in heard} == {
        f"atoll.changes.root.{rivals.identities[0]}.rivals_example_com.circles.{mine}"
    }
    assert {change.object["metadata"]["annotations"]["kcp.io/cluster"] for change in heard} == {mine}


async def test_a_key_is_not_read_on_the_stream(rivals: Rivals) -> None:
    provider = rivals.providers[0]
    key = provider.get(f"{SECRETS}/shapes").json["data"]["key"]
    provider.post(SECRETS, {"metadata": {"name": "last"}, "stringData": {"a": "b"}})
    async with Operator(process_of(provider), 1) as operator:
        await operator.consume(f"atoll.changes.root.*.*.*.{cluster_of(provider)}")
        heard = await operator.until("last")
    names = [change.name for change in heard]
    assert names.count("shapes") >= 3, "the Secret, the export and its slice"
    plain = base64.b64decode(key)
    for form in (key.encode().rstrip(b"="), plain):
        assert not [change.subject for change in heard if form in change.payload]


@pytest.mark.long
def test_an_identity_is_its_exports_after_a_restart_whatever_became_of_the_secret(tmp_path: Path) -> None:
    """Under the identities of root's exports every workspace is stored."""
    with ShardProcess(tmp_path) as shard:
        root = Api(shard, "root")
        api = root.at(workspace_under(root, type_="universal"))
        before = make_export(api, "shapes", CIRCLES)
        changed = {"tenancy.kcp.io": "not found", "topology.kcp.io": "hash mismatch", "shards.core.kcp.io": "data.key"}
        known = {name: identity_of(root, name) for name in changed}
        root.delete(f"{SECRETS}/tenancy.kcp.io")
        root.patch(f"{SECRETS}/topology.kcp.io", {"data": {"key": base64.b64encode(b"another").decode()}})
        root.patch(f"{SECRETS}/shards.core.kcp.io", {"data": {"key": None}})
        for name in changed:
            wait_condition(root, f"{EXPORTS}/{name}", "IdentityValid", "False", "IdentityVerificationFailed")
        shard.restart()
        root, api = Api(shard, "root"), Api(shard, api.cluster)
        # It went on where the log ended, and comes to new work behind the old.
        make_export(api, "more", schema("squares"))
        assert api.get(f"{EXPORTS}/shapes").json == before
        for name, reason in changed.items():
            found = root.get(f"{EXPORTS}/{name}").json
            assert reason in condition(found, "IdentityValid")["message"]
            assert found["status"]["identityHash"] == known[name]
        workspace_under(root, type_="universal")
