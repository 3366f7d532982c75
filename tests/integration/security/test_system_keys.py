"""The system's annotations, labels and finalizers: an administrator of a workspace writes none of them, by any verb.

Each row of the table is tried on each of its kinds; without the plug-in every row that it enforces is crossed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from atoll.shard.admission.system_keys import SYSTEM_KEYS, Field, GroupResource, Rule, SystemKey
from harness.clients.api import APPLY, JSON_PATCH, MERGE, Answer, Api, Object, configmap, crd
from harness.clients.exports import BINDINGS, EXPORTS, SCHEMAS, SLICES, bind, binding, export, make_export, schema
from harness.clients.tenants import CLUSTER, CONFIGMAPS, RBAC, TENANCY, Scene, token_file
from harness.data.kind_samples import CONTENT
from harness.servers.mutant_shard import patched
from harness.servers.shard_process import ShardProcess
from harness.tiers import every

FORGED = "region"
CACHE = "/apis/cache.kcp.io/v1alpha1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "one"}
REFERENCE = {"export": {"path": "root", "name": "tenancy.kcp.io"}}


class Sample(NamedTuple):
    """Where the objects of a kind are, and a body; LogicalClusters have no body, as no tenant creates one."""

    path: str
    body: Object | None
    has_status: bool = True


def _sample(path: str, kind: str, has_status: bool = True, **content: Any) -> Sample:
    version = path.removeprefix("/apis/").rpartition("/")[0]
    return Sample(path, {"apiVersion": version, "kind": kind, **content}, has_status)


MADE = schema("circles")
SAMPLES: dict[GroupResource, Sample] = {
    ("", "configmaps"): Sample(CONFIGMAPS, configmap(""), has_status=False),
    ("core.kcp.io", "logicalclusters"): Sample(CLUSTER.rpartition("/")[0], None),
    ("tenancy.kcp.io", "workspaces"): _sample(
        f"{TENANCY}/workspaces", "Workspace", spec={"type": {"name": "universal", "path": "root"}}
    ),
    ("tenancy.kcp.io", "workspacetypes"): _sample(f"{TENANCY}/workspacetypes", "WorkspaceType", spec={}),
    ("apis.kcp.io", "apibindings"): Sample(BINDINGS, binding("root", "topology.kcp.io")),
    ("apis.kcp.io", "apiexports"): Sample(EXPORTS, export("", MADE)),
    ("apis.kcp.io", "apiresourceschemas"): Sample(SCHEMAS, MADE, has_status=False),
    ("apis.kcp.io", "apiexportendpointslices"): _sample(
        SLICES, "APIExportEndpointSlice", spec={"export": {"name": "shapes"}}
    ),
    ("cache.kcp.io", "clustercachedresources"): _sample(
        f"{CACHE}/clustercachedresources",
        "ClusterCachedResource",
        spec={"group": "shapes.example.com", "version": "v1", "resource": "circles"},
    ),
    ("cache.kcp.io", "clustercachedresourceendpointslices"): _sample(
        f"{CACHE}/clustercachedresourceendpointslices",
        "ClusterCachedResourceEndpointSlice",
        spec={"clusterCachedResource": {"name": "one"}, "export": {"name": "shapes"}},
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"): Sample(CRDS, crd("squares")),
    ("rbac.authorization.k8s.io", "clusterroles"): _sample(
        f"{RBAC}/clusterroles", "ClusterRole", has_status=False, rules=RULES
    ),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _sample(
        f"{RBAC}/clusterrolebindings", "ClusterRoleBinding", has_status=False, roleRef=ROLE
    ),
}
for _kind in ("Mutating", "Validating"):
    for _part in ("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding"):
        _plural = f"{_kind}{_part}s".lower().replace("policys", "policies")
        _group = "admissionregistration.k8s.io"
        _content = CONTENT[_group, _plural]
        assert not callable(_content)
        SAMPLES[_group, _plural] = _sample(
            f"/apis/{_group}/v1/{_plural}", f"{_kind}{_part}", _plural == "validatingadmissionpolicies", **_content
        )
#: Kinds without test objects: their names follow from their content, or no tenant has them.
UNTRIED = {("apis.kcp.io", "apiconversions"), ("core.kcp.io", "shards")}
ENFORCED = (Rule.REFUSED, Rule.RESTORED, Rule.FROZEN)
TRIALS = [
    pytest.param(row, kind, id=f"{row.key} of {kind[1]}")
    for row in SYSTEM_KEYS
    if row.rule is not Rule.AUTHORS
    for kind in row.kinds or (("", "configmaps"),)
    if kind not in UNTRIED
]


class Keyed:
    """A workspace with one object of each kind, whose administrator tries to write a key."""

    def __init__(self, root: Api) -> None:
        self.scene = scene = Scene(root)
        self.tenant, self.master = scene.helper, scene.master
        make_export(scene.here, "shapes", MADE)
        bind(scene.here, "root", "cache.kcp.io")
        for kind, sample in SAMPLES.items():
            if sample.body is not None and kind[1] not in {"apiresourceschemas", "apiexports"}:
                self.tenant.post(sample.path, self.body(kind, "one"))
        scene.reach("one", "Ready")

    def body(self, kind: GroupResource, name: str, **metadata: Any) -> Object:
        body = SAMPLES[kind].body
        assert body is not None
        name = {"apiresourceschemas": f"{name}.circles.shapes.example.com"}.get(kind[1], name)
        content = {key: value for key, value in body.items() if key != "metadata"}
        if kind[1] == "clustercachedresources" and name == "two":
            content["spec"] = {**content["spec"], "resource": "others"}
        if kind[1] == "customresourcedefinitions":
            made = crd({"one": "squares", "two": "stars"}[name])
            name, content = made["metadata"]["name"], {key: value for key, value in made.items() if key != "metadata"}
        return {**content, "metadata": {"name": name, **metadata}}

    def stored(self, kind: GroupResource) -> tuple[str, Object]:
        """Path and content of the object of a kind that is tried."""
        names = {
            "logicalclusters": "cluster",
            "apiresourceschemas": MADE["metadata"]["name"],
            "apiexports": "shapes",
            "customresourcedefinitions": "squares.shapes.example.com",
        }
        path = f"{SAMPLES[kind].path}/{names.get(kind[1], 'one')}"
        return path, self.master.get(path).json

    def tries(self, row: SystemKey, kind: GroupResource, query: str) -> Iterator[tuple[str, Answer, Object | None]]:
        """Every verb that could write the key: its name, the answer, and the object before."""
        send, sample = self.tenant.send, SAMPLES[kind]
        if sample.body is not None and row.rule is not Rule.FROZEN and row.field is not Field.FINALIZER:
            body = self.body(kind, "two", **forged(row, {}))
            yield "create", send("POST", f"{sample.path}?dryRun=All", body), None
            path_two = f"{sample.path}/{body['metadata']['name']}?dryRun=All&fieldManager=me"
            yield "apply that creates", send("PATCH", path_two, json.dumps(body).encode(), kind=APPLY), None
        path, before = self.stored(kind)
        metadata = forged(row, before["metadata"])
        field, value = next(iter(metadata.items()))
        patches: list[tuple[str, str, Any]] = [
            ("merge patch", MERGE, {"metadata": metadata}),
            ("JSON patch", JSON_PATCH, [{"op": "add", "path": f"/metadata/{field}", "value": value}]),
        ]
        for subresource in ("", "/status") if sample.has_status else ("",):
            for name, type, patch in patches:
                yield name + subresource, send("PATCH", path + subresource + query, patch, kind=type), before
            whole = {**before, "metadata": {**before["metadata"], **metadata, "resourceVersion": ""}}
            latest = self.master.get(path).json["metadata"]["resourceVersion"]
            whole["metadata"]["resourceVersion"] = latest
            yield f"update{subresource}", send("PUT", path + subresource + query, whole), before
        applied = {key: before[key] for key in ("apiVersion", "kind")} | {
            "metadata": {"name": before["metadata"]["name"]}
        }
        if row.field is not Field.FINALIZER:
            applied["metadata"][field] = {key(row): FORGED}
            query = f"{query}{'&' if query else '?'}fieldManager=me&force=true"
            yield "apply", send("PATCH", path + query, json.dumps(applied).encode(), kind=APPLY), before


def key(row: SystemKey) -> str:
    """The key of a row; one of its keys where it is a prefix."""
    return f"{row.key}forged" if row.key.endswith("/") else row.key


def forged(row: SystemKey, metadata: Object) -> Object:
    """The field of a row with the key forged: another value, or a finalizer removed or added."""
    field = row.field.value
    if row.field is not Field.FINALIZER:
        return {field: {**metadata.get(field, {}), key(row): FORGED}}
    held = metadata.get(field, [])
    return {field: [each for each in held if each != row.key] if row.key in held else [*held, row.key]}


def value(row: SystemKey, obj: Object) -> Any:
    found = obj["metadata"].get(row.field.value)
    return row.key in (found or []) if row.field is Field.FINALIZER else (found or {}).get(key(row))


def trial(keyed: Keyed, row: SystemKey, kind: GroupResource, query: str) -> None:
    for verb, answer, before in keyed.tries(row, kind, query):
        if row.rule is Rule.REFUSED and answer.code == 422:
            assert row.key in answer.message, verb
            continue
        if answer.code == 403 and ("/status" in verb or "is reserved" in answer.message):
            # The status of kcp's own kinds, and the annotations of its domain, belong to the system.
            continue
        assert answer.code in {200, 201}, (verb, answer.body)
        written = value(row, answer.json)
        assert written == value(row, before) if before else written != FORGED, verb
    # The child may be created again; the stored object is unchanged.
    assert value(row, keyed.stored(kind)[1]) != FORGED


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    directory = tmp_path_factory.mktemp("keyed")
    with ShardProcess(directory, *token_file(directory)) as shard:
        yield Keyed(Api(shard, "root"))


@pytest.mark.parametrize(("row", "kind"), every(3, TRIALS))
def test_an_administrator_of_a_workspace_writes_no_key_of_the_system(
    keyed: Keyed, row: SystemKey, kind: GroupResource
) -> None:
    trial(keyed, row, kind, "")


WITHOUT = """
import atoll.shard.admission.system_metadata as system_metadata
system_metadata.rows_by_kind = lambda rows: {}
"""


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    directory = tmp_path_factory.mktemp("unguarded")
    with ShardProcess(directory, *token_file(directory), environment=patched(directory, WITHOUT)) as shard:
        yield Keyed(Api(shard, "root"))


@pytest.mark.parametrize(("row", "kind"), every(3, [each for each in TRIALS if each.values[0].rule in ENFORCED]))  # type: ignore[union-attr]
def test_without_the_table_each_key_is_written(unguarded: Keyed, row: SystemKey, kind: GroupResource) -> None:
    with pytest.raises(AssertionError):
        trial(unguarded, row, kind, "?dryRun=All")


#: The keys that the authors of objects write, with their kinds; a row that becomes one of them is tried no more.
OF_AUTHORS: set[tuple[str, tuple[str, ...]]] = {
    ("api-approved.kubernetes.io", ("customresourcedefinitions",)),
    ("apiexports.apis.kcp.io/skip-endpointslice", ("apiexports",)),
    ("bindings.atoll.dev/identity", ("apibindings",)),
    ("bootstrap.kcp.io/battery", ("clusterrolebindings", "clusterroles", "secrets", "serviceaccounts")),
    ("cache.kcp.io/original-resource-UID", ()),
    ("cache.kcp.io/original-resource-version", ()),
    ("core.kcp.io/inactive", ("logicalclusters",)),
    ("experimental.core.kcp.io/unschedulable", ("shards",)),
    ("experimental.quota.kcp.io/cluster-scoped", ("resourcequotas",)),
    ("experimental.tenancy.kcp.io/default-api-binding-lifecycle", ("workspacetypes",)),
    ("experimental.tenancy.kcp.io/is-mount", ()),
    ("extra.apis.kcp.io/", ("apibindings", "apiexports")),
    ("internal.atoll.dev/event-keys", ("shards",)),
    ("internal.atoll.dev/installation", ("configmaps",)),
    ("internal.atoll.dev/registered-labels", ("shards",)),
    ("internal.atoll.dev/store", ("shards",)),
    ("internal.kcp.io/inactive", ("logicalclusters",)),
    ("internal.kcp.io/replicate", ("clusterrolebindings", "clusterroles")),
    ("kcp.io/shard", ()),
    ("name", ("shards",)),
    ("preserve.conversion.apis.kcp.io/", ()),
    ("rbac.authorization.kubernetes.io/autoupdate", ("clusterrolebindings", "clusterroles")),
    ("region", ("shards",)),
    ("region", ("workspaces",)),
    ("replication.atoll.dev/level", ("apiconversions", "apiexportendpointslices", "apiexports", "apiresourceschemas")),
    ("scheduling.atoll.dev/reserved-for", ("shards",)),
    ("views.atoll.dev/shared-with", ("apibindings",)),
}


def test_no_other_key_is_left_to_the_authors_of_objects() -> None:
    left = {(row.key, tuple(sorted(kind for _, kind in row.kinds))) for row in SYSTEM_KEYS if row.rule is Rule.AUTHORS}
    assert left == OF_AUTHORS


def test_a_kind_has_one_row_for_a_key() -> None:
    seen = [(row.field, row.key, kind) for row in SYSTEM_KEYS for kind in row.kinds or [("", "")]]
    assert [each for each, group in itertools.groupby(sorted(seen, key=str)) if len(list(group)) > 1] == []


def test_who_may_write_shards_may_not_say_what_they_hold(keyed: Keyed) -> None:
    root, master = keyed.scene.root, keyed.scene.master.at("root")
    path, key = "/apis/core.kcp.io/v1alpha1/shards/root", "shards.atoll.dev/roots"
    rule = {"apiGroups": ["core.kcp.io"], "resources": ["shards"], "verbs": ["*"]}
    reach = {"nonResourceURLs": ["/"], "verbs": ["access"]}
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "of-shards"}}
    root.post(f"{RBAC}/clusterroles", {**body, "rules": [rule, reach]})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "shard-keeper"}
    root.post(
        f"{RBAC}/clusterrolebindings",
        {**body, "kind": "ClusterRoleBinding", "roleRef": {**ROLE, "name": "of-shards"}, "subjects": [subject]},
    )
    keeper = {"Impersonate-User": "shard-keeper", "Impersonate-Group": "system:authenticated"}
    patch = {"metadata": {"annotations": {key: "tenant:taken", "else": "written"}}}
    said = master.send("PATCH", path, patch, kind=MERGE, headers=keeper)
    assert (said.code, said.json["metadata"]["annotations"].get("else")) == (200, "written"), said.body
    assert key not in said.json["metadata"]["annotations"]
    assert root.patch(path, patch).json["metadata"]["annotations"][key] == "tenant:taken"
