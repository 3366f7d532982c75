"""Every served kind over the wire, with every verb that the kind has.

Kinds come from `harness.data.kind_samples`, and the last tests hold that list to what discovery says. Controllers may
write between two requests of a test, so comparisons leave out what is theirs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from atoll.machinery.kinds.kind import Kind
from harness.clients.api import (
    APPLY,
    JSON_PATCH,
    MERGE,
    PARTIAL,
    STRATEGIC,
    TABLE,
    YAML,
    Answer,
    Api,
    Event,
    Events,
    define,
    eventually,
    workspace_under,
)
from harness.data.kind_samples import IN_ROOT, SINGLETONS, collection, definitions, kinds, name_of, needed, sample
from harness.servers.shard_process import ShardProcess
from harness.tiers import every

Object = dict[str, Any]
KINDS = kinds()
MADE_BY_CLIENTS = [kind for kind in KINDS if kind.plural not in SINGLETONS]
#: Statuses that decide what a workspace serves: only the system writes them.
KCPS_OWN_STATUSES = frozenset({"apibindings", "apiexports"})
LABELLED = {"metadata": {"labels": {"a": "b"}}}

_numbers = itertools.count()


def _id(kind: Kind) -> str:
    return f"{kind.plural}.{kind.version}.{kind.group}"


every_kind = pytest.mark.parametrize("kind", every(2, KINDS), ids=_id)
every_made_kind = pytest.mark.parametrize("kind", every(2, MADE_BY_CLIENTS), ids=_id)


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path_factory.mktemp("shard")) as running:
        yield running


@pytest.fixture(scope="module")
def root(shard: ShardProcess) -> Iterator[Api]:
    api = Api(shard, "root")
    yield api
    api.close()


@pytest.fixture(scope="module")
def workspace(root: Api) -> Iterator[Api]:
    """kcp-admin in a workspace with a tenant's definitions."""
    here = root.at(workspace_under(root, type_="universal"))
    for definition in definitions():
        define(here, definition)
    yield here
    here.close()


@pytest.fixture
def api(kind: Kind, root: Api, workspace: Api) -> Api:
    return root if kind.plural in IN_ROOT else workspace


@pytest.fixture
def name(api: Api, kind: Kind) -> str:
    found = name_of(kind, next(_numbers))
    for there, obj in needed(kind, found):
        api.post(there, obj)
    return found


@pytest.fixture
def path(kind: Kind, name: str) -> str:
    return f"{collection(kind)}/{name}"


@pytest.fixture
def made(api: Api, kind: Kind, name: str, path: str) -> Object:
    """The object as it was created."""
    if kind.plural in SINGLETONS:
        return dict(api.get(path).json)
    return dict(api.post(collection(kind), sample(kind, name)).json)


def own(obj: Object) -> Object:
    """An object without the fields that controllers write."""
    metadata = {key: obj["metadata"].get(key) for key in ("name", "namespace", "uid", "creationTimestamp")}
    return {**{key: value for key, value in obj.items() if key not in {"spec", "status"}}, "metadata": metadata}


def undisturbed(write: Callable[[Object], Answer], read: Callable[[], Object]) -> tuple[Object, Object]:
    """The object, and the result of a write of it; repeated until no other write came between."""
    deadline = time.monotonic() + 15
    while True:
        before = read()
        answer = write(before)
        if answer.code != 409 or time.monotonic() > deadline:
            assert answer.code == 200, answer.body[:2000]
            return before, answer.json


def has_own_fields(kind: Kind, name: str) -> bool:
    """Whether a sample has fields besides its metadata that a request may set."""
    return bool(set(sample(kind, name)) - {"apiVersion", "kind", "metadata", *kind.resets.get("", ())})


@every_made_kind
def test_it_is_created_read_and_listed(api: Api, kind: Kind, name: str, made: Object, path: str) -> None:
    metadata = made["metadata"]
    assert (made["apiVersion"], made["kind"]) == (kind.api_version, kind.kind)
    assert (metadata["name"], bool(metadata["uid"])) == (name, True)
    if has_own_fields(kind, name):
        assert "wire-test" in {each["manager"] for each in metadata["managedFields"]}
    assert metadata.get("generation") == (1 if kind.generation else None)
    assert own(api.get(path).json) == own(made)
    listed = api.get(collection(kind)).json
    assert (listed["kind"], listed["apiVersion"]) == (kind.list_kind_name, kind.api_version)
    lead = {"apiVersion": kind.api_version, "kind": kind.kind}
    # Lists of Kubernetes' own kinds have it once, in the list itself.
    assert all(bool(set(lead) & set(item)) != kind.builtin for item in listed["items"])
    assert own(made) in [own({**lead, **item}) for item in listed["items"]]
    assert api.post(collection(kind), sample(kind, name), expect=409).json["reason"] == "AlreadyExists"


@every_made_kind
def test_no_field_that_is_owned_is_an_empty_map(api: Api, kind: Kind, name: str, made: Object, path: str) -> None:
    entries = api.get(path).json["metadata"].get("managedFields", [])
    assert entries or not has_own_fields(kind, name)
    for entry in entries:
        below = entry["fieldsV1"].get("f:metadata", {})
        assert all(below[name] for name in ("f:labels", "f:annotations", "f:finalizers") if name in below), entry


@every_made_kind
def test_it_is_taken_as_yaml_and_with_strict_validation(api: Api, kind: Kind, name: str, path: str) -> None:
    body = yaml.safe_dump(sample(kind, name)).encode()
    query = "?fieldValidation=Strict&dryRun=All"
    answer = api.post(collection(kind) + query, body, kind=YAML).json
    assert (answer["kind"], "resourceVersion" in answer["metadata"]) == (kind.kind, False)
    wrong = {**sample(kind, name), "nonsense": 1}
    message = api.post(collection(kind) + query, wrong, expect=400).message
    assert message.endswith('strict decoding error: unknown field "nonsense"')
    api.get(path, expect=404)


@every_made_kind
def test_it_is_watched_from_its_creation_to_its_end(api: Api, kind: Kind, name: str, made: Object, path: str) -> None:
    with api.watch(f"{collection(kind)}?watch=1&fieldSelector=metadata.name%3D{name}") as events:
        first = events.next()
        assert (first.type, own(first.object)) == ("ADDED", own(made))
        api.patch(path, LABELLED)
        changed = _until(events, lambda event: event.object["metadata"].get("labels", {}).get("a") == "b")
        assert changed.type == "MODIFIED"
        api.delete(path)
        last = _until(events, lambda event: event.type == "DELETED")
        assert (last.object["kind"], last.revision > first.revision) == (kind.kind, True)


def _until(events: Events, wanted: Callable[[Event], bool]) -> Event:
    while not wanted(event := events.next()):
        continue
    return event


@every_kind
@pytest.mark.parametrize(
    ("media", "body"),
    [
        (MERGE, LABELLED),
        (STRATEGIC, LABELLED),
        (JSON_PATCH, [{"op": "add", "path": "/metadata/labels/a", "value": "b"}]),
    ],
    ids=["merge", "strategic", "json"],
)
def test_it_is_patched(api: Api, kind: Kind, made: Object, path: str, media: str, body: Any) -> None:
    if media == STRATEGIC and not kind.builtin:
        assert "application/merge-patch+json" in api.patch(path, body, media, expect=415).message
        return
    if media == JSON_PATCH:
        api.patch(path, {"metadata": {"labels": {"z": "z"}}})
    changed = api.patch(path, body, media).json
    assert (changed["metadata"]["labels"]["a"], changed["metadata"]["uid"]) == ("b", made["metadata"]["uid"])
    if media == MERGE:
        dry = api.patch(f"{path}?dryRun=All", {"metadata": {"labels": {"a": "c"}}}).json
        assert dry["metadata"]["labels"]["a"] == "c"
        assert api.get(path).json["metadata"]["labels"]["a"] == "b"


@every_kind
def test_a_patch_that_changes_nothing_keeps_the_revision(api: Api, made: Object, path: str) -> None:
    api.patch(path, LABELLED)

    def write(before: Object) -> Answer:
        version = before["metadata"]["resourceVersion"]
        body = {"metadata": {"labels": {"a": "b"}, "resourceVersion": version}}
        return api.patch(path, body, expect=0)

    before, answer = undisturbed(write, lambda: dict(api.get(path).json))
    assert answer == before


@every_made_kind
def test_it_is_applied_new_again_and_over_another(api: Api, kind: Kind, name: str, path: str) -> None:
    query = "?fieldManager=tester"
    api.patch(f"{path}{query}&dryRun=All", sample(kind, name), APPLY, expect=201)
    api.get(path, expect=404)
    api.patch(path + query, sample(kind, name, labels={"a": "1"}), APPLY, expect=201)
    again = api.patch(path + query, sample(kind, name, labels={"a": "2"}), APPLY).json
    assert again["metadata"]["labels"]["a"] == "2"
    owners = {(f["manager"], f["operation"]): f["fieldsV1"] for f in again["metadata"]["managedFields"]}
    assert owners["tester", "Apply"]["f:metadata"] == {"f:labels": {"f:a": {}}}
    conflict = api.patch(path + "?fieldManager=other", sample(kind, name, labels={"a": "3"}), APPLY, expect=409).json
    # Defaults that joined an atomic map conflict as well, as in Kubernetes.
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "tester"', "field": ".metadata.labels.a"}
    causes = conflict["details"]["causes"]
    assert cause in causes
    assert conflict["message"].startswith(f"Apply failed with {len(causes)} conflict")
    forced = api.patch(path + "?fieldManager=other&force=true", sample(kind, name, labels={"a": "3"}), APPLY).json
    assert forced["metadata"]["labels"]["a"] == "3"


@every_made_kind
def test_an_apply_of_the_same_again_keeps_the_revision(api: Api, kind: Kind, name: str, path: str) -> None:
    target = f"{path}?fieldManager=tester"
    api.patch(target, sample(kind, name, labels={"a": "1"}), APPLY, expect=201)

    def write(before: Object) -> Answer:
        version = before["metadata"]["resourceVersion"]
        return api.send("PATCH", target, sample(kind, name, labels={"a": "1"}, resourceVersion=version), kind=APPLY)

    before, answer = undisturbed(write, lambda: dict(api.get(path).json))
    assert answer == before


@every_made_kind
def test_an_apply_that_does_not_fit_is_refused_in_words(api: Api, kind: Kind, name: str, path: str) -> None:
    target = f"{path}?fieldManager=tester"
    unknown = api.patch(target, {**sample(kind, name), "nonsense": 1}, APPLY, expect=400)
    assert unknown.message.endswith(".nonsense: field not declared in schema")
    wrong = api.patch(target, sample(kind, name, labels={"a": 1}), APPLY, expect=400).json
    assert wrong["reason"] == "BadRequest"
    assert ".metadata.labels.a: expected string, got &value.valueUnstructured{Value:1}" in wrong["message"]
    api.get(path, expect=404)


@every_kind
def test_it_is_replaced_and_left_alone_when_nothing_changed(api: Api, made: Object, path: str) -> None:
    def read() -> Object:
        return dict(api.get(path).json)

    before, answer = undisturbed(lambda obj: api.put(path, obj, expect=0), read)
    assert answer == before

    def write(obj: Object) -> Answer:
        metadata = {**obj["metadata"], "annotations": {**obj["metadata"]["annotations"], "example.com/a": "b"}}
        return api.put(path, {**obj, "metadata": metadata}, expect=0)

    before, changed = undisturbed(write, read)
    assert changed["metadata"]["annotations"]["example.com/a"] == "b"
    assert int(changed["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    stale = {**before, "metadata": {**before["metadata"], "labels": {"z": "z"}}}
    assert api.put(path, stale, expect=409).json["reason"] == "Conflict"


@every_kind
def test_it_is_shown_as_a_table_and_as_metadata(api: Api, kind: Kind, name: str, made: Object, path: str) -> None:
    for where in (path, collection(kind)):
        table = api.get(where, accept=TABLE).json
        columns = [column["name"] for column in table["columnDefinitions"]]
        assert (table["kind"], len(set(columns))) == ("Table", len(columns))
        row = next(row for row in table["rows"] if row["object"]["metadata"]["name"] == name)
        assert len(row["cells"]) == len(columns)
        assert name in row["cells"] or kind.plural == "events"
        assert row["object"]["kind"] == "PartialObjectMetadata"
    assert api.get(path, accept=PARTIAL).json["metadata"]["uid"] == made["metadata"]["uid"]


@every_kind
def test_its_status_has_a_door_of_its_own(api: Api, kind: Kind, made: Object, path: str) -> None:
    if kind.subresource("status") is None:
        api.get(f"{path}/status", expect=404)
        return
    if kind.plural in KCPS_OWN_STATUSES:
        api.get(f"{path}/status", expect=403)
        return
    assert own(api.get(f"{path}/status").json) == own(made)
    before, answer = undisturbed(lambda obj: api.put(f"{path}/status", obj, expect=0), lambda: dict(api.get(path).json))
    assert answer == before
    changed = api.patch(f"{path}/status", {"metadata": {"labels": {"through": "status"}}}).json
    # Built-in kinds accept metadata by this path, except policies; custom kinds never do.
    takes = kind.builtin and "metadata" not in kind.resets.get("status", ("metadata",))
    assert ("through" in changed["metadata"].get("labels", {})) is takes
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": made["metadata"]["name"]}}
    applied = api.patch(f"{path}/status?fieldManager=tester", body, APPLY).json
    assert "tester" not in {entry["manager"] for entry in applied["metadata"]["managedFields"]}


@every_made_kind
def test_it_is_deleted_alone_and_with_its_collection(api: Api, kind: Kind, name: str, made: Object, path: str) -> None:
    api.delete(f"{path}?dryRun=All")
    api.get(path)
    wrong = {"preconditions": {"uid": "another"}}
    assert api.delete(path, wrong, expect=409).json["reason"] == "Conflict"
    answer = api.delete(path).json
    assert answer["kind"] in {"Status", kind.kind}
    eventually(lambda: api.get(path, expect=0).code == 404, f"{path} gone")
    if "deletecollection" in kind.verbs:
        api.post(collection(kind), sample(kind, name, labels={"all": name}))
        deleted = api.delete(f"{collection(kind)}?labelSelector=all%3D{name}").json
        assert [item["metadata"]["name"] for item in deleted["items"]] == [name]
        eventually(lambda: api.get(path, expect=0).code == 404, f"{path} gone")


def _served(api: Api) -> dict[tuple[str, str, str], Object]:
    """Resources of discovery that can be read, by group, version and plural."""
    found: dict[tuple[str, str, str], Object] = {}
    versions = [("", "v1")]
    versions += [(g["name"], v["version"]) for g in api.get("/apis").json["groups"] for v in g["versions"]]
    for group, version in versions:
        document = api.get(f"/apis/{group}/{version}" if group else f"/api/{version}").json
        for resource in document["resources"]:
            made_by_the_matrix = resource["name"].startswith("squares")
            if "/" not in resource["name"] and "get" in resource["verbs"] and not made_by_the_matrix:
                found[group, version, resource["name"]] = resource
    return found


def test_what_discovery_serves_is_what_the_matrix_runs_over(root: Api, workspace: Api) -> None:
    served = {**_served(root), **_served(workspace)}
    assert served.keys() == {(kind.group, kind.version, kind.plural) for kind in KINDS}
    for kind in KINDS:
        resource = served[kind.group, kind.version, kind.plural]
        assert (resource["kind"], resource["namespaced"]) == (kind.kind, kind.namespaced)
        assert set(resource["verbs"]) == set(kind.verbs)
