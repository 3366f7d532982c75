"""What exists before the first request."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable

import msgspec

from atoll.machinery.kcp.apis import bound_crds, root_exports
from atoll.machinery.kcp.bootstrap.objects import bootstrap
from atoll.machinery.kcp.bootstrap.reconcile import reconciled
from atoll.machinery.kcp.manifest import Manifest
from atoll.machinery.kinds.kubernetes.schema_names import schema_names
from atoll.machinery.meta import hashes
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import API_EXPORTS, CRDS
from harness.data.kcp_objects import EXPORTS, NOW, bootstrapped, find, options

MANIFESTS = bootstrapped()
IDENTITIES = {name: hashes.identity_hash(f"key of {name}".encode()) for name in EXPORTS}
CLUSTERS = ["system:system-crds", "system:admin", "system:bound-crds", "root", "system:shard"]


def names(cluster: str, resource: str) -> list[str]:
    return [m.key.name for m in MANIFESTS if m.cluster == cluster and m.type.resource == resource]


def rules(cluster: str, name: str) -> list[Object]:
    found: list[Object] = find(MANIFESTS, cluster, "clusterroles", name)["rules"]
    return found


def test_each_cluster_begins_with_its_logical_cluster() -> None:
    order = list(dict.fromkeys(m.cluster for m in MANIFESTS))
    assert order == CLUSTERS
    for cluster in CLUSTERS:
        first = next(m for m in MANIFESTS if m.cluster == cluster)
        assert (first.type.resource, first.key.name) == ("logicalclusters", "cluster")
        assert first.object["status"]["phase"] == "Ready"
        assert first.object["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Ready"}


def test_every_object_is_whole_and_written_once() -> None:
    assert len({m.key for m in MANIFESTS}) == len(MANIFESTS)
    assert len({m.object["metadata"]["uid"] for m in MANIFESTS}) == len(MANIFESTS)
    for manifest in MANIFESTS:
        metadata = manifest.object["metadata"]
        assert metadata["annotations"]["kcp.io/cluster"] == manifest.cluster
        assert metadata["creationTimestamp"] == NOW
        assert metadata["generation"] == 1
        assert manifest.object["apiVersion"]
        encode(manifest.object)


def test_namespaces_come_before_what_stands_in_them() -> None:
    seen = set()
    for manifest in MANIFESTS:
        if manifest.type.resource == "namespaces":
            seen.add((manifest.cluster, manifest.key.name))
        assert not manifest.key.namespace or (manifest.cluster, manifest.key.namespace) in seen


def test_the_same_options_give_the_same_objects() -> None:
    assert bootstrapped() == MANIFESTS


def test_roots_logical_cluster_is_kcps() -> None:
    root = find(MANIFESTS, "root", "logicalclusters", "cluster")
    annotations = root["metadata"]["annotations"]
    locks = json.loads(annotations.pop("internal.apis.kcp.io/resource-bindings"))
    assert annotations == {
        "kcp.io/cluster": "root",
        "kcp.io/path": "root",
        "core.kcp.io/shard": "root",
        "internal.tenancy.kcp.io/type": "root:root",
        "internal.kcp.io/replicate": "apis.kcp.io,tenancy.kcp.io",
    }
    assert locks["workspaces.tenancy.kcp.io"] == {"n": "tenancy.kcp.io"}
    assert set(locks.values() and (lock["n"] for lock in locks.values())) == set(EXPORTS) - {
        "cache.kcp.io",
        "kubernetes",
    }
    assert root["metadata"]["finalizers"] == ["core.kcp.io/logicalcluster-deletion"]
    assert root["status"]["URL"] == "https://front.example/clusters/root"


def test_system_crds_are_established() -> None:
    assert len(names("system:system-crds", "customresourcedefinitions")) == 8
    crd = find(MANIFESTS, "system:system-crds", "customresourcedefinitions", "apibindings.apis.kcp.io")
    assert crd["status"]["storedVersions"] == ["v1alpha2"]
    assert [c["type"] for c in crd["status"]["conditions"] if c["status"] == "True"] == ["NamesAccepted", "Established"]
    assert crd["status"]["acceptedNames"] == crd["spec"]["names"]


def test_schemas_have_kcps_names_and_our_definitions() -> None:
    assert set(names("root", "apiresourceschemas")) == {
        "v260302-ae9fdd9c1.shards.core.kcp.io",
        "v260522-2bf05df66.logicalclusters.core.kcp.io",
        "v260522-2bf05df66.workspaces.tenancy.kcp.io",
        "v260519-96f2749.workspacetypes.tenancy.kcp.io",
        "v250827-717cfea84.workspaceauthenticationconfigurations.tenancy.kcp.io",
        "v240903-d6797056a.partitions.topology.kcp.io",
        "v240903-d6797056a.partitionsets.topology.kcp.io",
        "v250920-de0c8484d.clustercachedresources.cache.kcp.io",
        "v260804-b35f3bb61.clustercachedresourceendpointslices.cache.kcp.io",
    }
    spec = find(MANIFESTS, "root", "apiresourceschemas", "v260522-2bf05df66.workspaces.tenancy.kcp.io")["spec"]
    assert (spec["group"], spec["names"]["kind"], spec["scope"]) == ("tenancy.kcp.io", "Workspace", "Cluster")
    assert spec["nameValidation"] == "DNS1123Subdomain"
    version = spec["versions"][0]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["schema"]["properties"]["spec"]["default"] == {}
    assert version["subresources"] == {"status": {}}


def test_exports_have_identities_that_match_their_secrets() -> None:
    for name in EXPORTS:
        secret = find(MANIFESTS, "root", "secrets", name, "kcp-system")
        export = find(MANIFESTS, "root", "apiexports", name)
        key = base64.b64decode(secret["data"]["key"])
        assert export["status"]["identityHash"] == hashes.identity_hash(key) == IDENTITIES[name]
        assert export["spec"]["identity"] == {"secretRef": {"name": name, "namespace": "kcp-system"}}
        schemas = [resource["schema"] for resource in export["spec"]["resources"]]
        # Those of Kubernetes' kinds are written once somebody binds them.
        assert set(schemas) <= {*names("root", "apiresourceschemas"), *schema_names().values()}
        assert ("maximalPermissionPolicy" in export["spec"]) == (name == "tenancy.kcp.io")
        assert export["metadata"]["annotations"]["kcp.io/path"] == "root"


def test_identity_secrets_are_never_written_again() -> None:
    assert not any(m.reconciled for m in MANIFESTS if m.type.resource in ("secrets", "logicalclusters"))


def test_bindings_are_bound_to_schemas_that_exist() -> None:
    assert names("root", "apibindings") == ["shards.core.kcp.io", "tenancy.kcp.io", "topology.kcp.io"]
    assert names("system:shard", "apibindings") == [*names("root", "apibindings"), "cache.kcp.io"]
    for cluster in ("root", "system:shard"):
        for name in names(cluster, "apibindings"):
            binding = find(MANIFESTS, cluster, "apibindings", name)
            assert binding["status"]["phase"] == "Bound"
            assert binding["spec"]["reference"]["export"] == {"path": "root", "name": name}
            for bound in binding["status"]["boundResources"]:
                schema = find(MANIFESTS, "root", "apiresourceschemas", bound["schema"]["name"])
                assert bound["schema"]["UID"] == schema["metadata"]["uid"]
                assert bound["schema"]["identityHash"] == IDENTITIES[name]


def test_objects_of_exported_kinds_are_stored_under_the_identity() -> None:
    by_resource = {m.type.resource: m.type.identity for m in MANIFESTS}
    assert by_resource["workspacetypes"] == IDENTITIES["tenancy.kcp.io"]
    assert by_resource["shards"] == IDENTITIES["shards.core.kcp.io"]
    assert by_resource["apibindings"] == "core"


def test_the_identity_cache_names_every_export() -> None:
    cache = find(MANIFESTS, "system:shard", "configmaps", "apiexport-identity-cache", "default")
    assert cache["data"] == IDENTITIES


def test_a_shard_that_joins_knows_of_roots_policies_before_it_hears_of_root() -> None:
    def policed(manifests: Iterable[Manifest]) -> set[str]:
        crds = [m.object for m in manifests if m.cluster == "system:bound-crds" and m.type == CRDS]
        assert len(crds) > 4
        return {name for crd in crds for name in bound_crds.policed_of(crd)}

    joining = msgspec.structs.replace(options(), root_installation=str(uuid.uuid4()))
    limited = {m.key.name for m in MANIFESTS if m.type == API_EXPORTS and "maximalPermissionPolicy" in m.object["spec"]}
    assert policed(bootstrap(joining)) == limited >= {"tenancy.kcp.io"}
    assert policed(MANIFESTS) == set()


def test_the_shard_is_labelled_with_its_name() -> None:
    shard = find(MANIFESTS, "root", "shards", "root")
    assert shard["metadata"]["labels"] == {"name": "root"}
    assert shard["spec"] == {
        "baseURL": "https://127.0.0.1:6443",
        "externalURL": "https://front.example",
        "virtualWorkspaceURL": "https://127.0.0.1:6443",
    }


def test_workspace_types_publish_their_virtual_workspaces() -> None:
    assert names("root", "workspacetypes") == ["universal", "root", "home", "organization", "team", "kubernetes"]
    status = find(MANIFESTS, "root", "workspacetypes", "team")["status"]
    assert status["virtualWorkspaces"] == [
        {"url": "https://127.0.0.1:6443/services/initializingworkspaces/root:team", "type": "initializing"},
        {"url": "https://127.0.0.1:6443/services/terminatingworkspaces/root:team", "type": "terminating"},
    ]


def test_aggregated_roles_hold_what_they_aggregate() -> None:
    view, edit, admin = (rules("system:admin", name) for name in ("view", "edit", "admin"))
    assert view == rules("system:admin", "system:aggregate-to-view")
    assert edit == [*rules("system:admin", "system:aggregate-to-edit"), *view]
    gathered = [*edit, *rules("system:admin", "system:aggregate-to-admin")]
    assert len(admin) == len(gathered)
    assert all(rule in admin for rule in gathered)
    role = find(MANIFESTS, "system:admin", "clusterroles", "edit")
    label = "rbac.authorization.k8s.io/aggregate-to-"
    assert role["aggregationRule"] == {"clusterRoleSelectors": [{"matchLabels": {f"{label}edit": "true"}}]}
    assert role["metadata"]["labels"] == {f"{label}admin": "true", "kubernetes.io/bootstrapping": "rbac-defaults"}


def test_default_bindings_reach_the_groups_they_are_for() -> None:
    for name, group in {
        "cluster-admin": "system:masters",
        "system:discovery": "system:authenticated",
        "system:kcp:admin:cluster-admin": "system:kcp:admin",
    }.items():
        binding = find(MANIFESTS, "system:admin", "clusterrolebindings", name)
        assert [subject["name"] for subject in binding["subjects"]] == [group]
    admin = find(MANIFESTS, "system:admin", "clusterrolebindings", "system:kcp:admin:cluster-admin")
    assert admin["roleRef"]["name"] == "cluster-admin"


def test_every_binding_refers_to_a_role_that_exists() -> None:
    for manifest in MANIFESTS:
        if manifest.type.resource == "clusterrolebindings":
            role = manifest.object["roleRef"]["name"]
            assert role in [*names(manifest.cluster, "clusterroles"), *names("system:admin", "clusterroles")]


def test_authenticated_users_may_use_root_as_kcp_lets_them() -> None:
    assert rules("root", "system:kcp:authenticated:workspacetypes:use") == [
        {
            "apiGroups": ["tenancy.kcp.io"],
            "resources": ["workspacetypes"],
            "resourceNames": ["kubernetes", "organization", "team", "universal"],
            "verbs": ["use"],
        }
    ]
    bound = find(MANIFESTS, "root", "clusterrolebindings", "system:kcp:authenticated:access")
    assert bound["roleRef"]["name"] == "system:kcp:workspace:access"
    assert rules("system:admin", "system:kcp:workspace:access") == [{"nonResourceURLs": ["/"], "verbs": ["access"]}]
    use = find(MANIFESTS, "root", "clusterroles", "system:kcp:authenticated:workspacetypes:use")
    assert use["metadata"]["annotations"]["internal.kcp.io/replicate"] == "tenancy.kcp.io"


def test_a_second_start_changes_nothing() -> None:
    later = bootstrap(options("2027-01-01T00:00:00Z"))
    changed = [
        again.key
        for first, again in zip(MANIFESTS, later, strict=True)
        if again.reconciled and reconciled(first.object, again.object) is not None
    ]
    assert changed == []


def test_what_a_controller_noted_in_conditions_is_left_to_it() -> None:
    wanted = find(MANIFESTS, "system:system-crds", "customresourcedefinitions", "apibindings.apis.kcp.io")
    noted = [{**each, "observedGeneration": 1} for each in wanted["status"]["conditions"]]
    stored = {**wanted, "status": {**wanted["status"], "observedGeneration": 1, "conditions": noted}}
    assert reconciled(stored, wanted) is None


def test_reconciling_brings_back_rules_and_keeps_additions() -> None:
    wanted = find(MANIFESTS, "system:admin", "clusterroles", "system:basic-user")
    extra = {"apiGroups": ["x"], "resources": ["y"], "verbs": ["get"]}
    metadata = {**wanted["metadata"], "uid": "other", "labels": {"mine": "1"}, "resourceVersion": "7"}
    stored = {**wanted, "metadata": metadata, "rules": [extra, wanted["rules"][0]]}
    result = reconciled(stored, wanted)
    assert result is not None
    assert result["rules"] == [extra, *wanted["rules"]]
    assert result["metadata"]["uid"] == "other"
    assert result["metadata"]["labels"]["mine"] == "1"
    assert result["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
    assert result["metadata"]["generation"] == 2
    assert stored["rules"] == [extra, wanted["rules"][0]]


def test_reconciling_leaves_alone_what_opted_out() -> None:
    wanted = find(MANIFESTS, "system:admin", "clusterroles", "system:basic-user")
    annotations = {"rbac.authorization.kubernetes.io/autoupdate": "false"}
    stored = {**wanted, "metadata": {**wanted["metadata"], "annotations": annotations}, "rules": []}
    assert reconciled(stored, wanted) is None


def test_reconciling_restores_a_spec_and_keeps_the_times_of_conditions() -> None:
    wanted = find(MANIFESTS, "root", "workspacetypes", "team")
    stored = {**wanted, "spec": {"initializer": True}}
    later = {**wanted, "status": {**wanted["status"], "conditions": []}}
    later["status"]["conditions"] = [{**c, "lastTransitionTime": "later"} for c in wanted["status"]["conditions"]]
    result = reconciled(stored, later)
    assert result is not None
    assert result["spec"] == wanted["spec"]
    assert result["status"] == wanted["status"]


def test_a_fresh_identity_is_nobodys_and_its_key_is_written_once() -> None:
    first, second = root_exports.new_identity(), root_exports.new_identity()
    assert first.hash != second.hash
    assert first.hash == hashes.identity_hash(first.key.encode())
    known = msgspec.structs.replace(
        options(), identities={name: root_exports.ExportIdentity("f" * 64) for name in EXPORTS}
    )
    later = list(bootstrap(known))
    assert not [each for each in later if each.type.resource == "secrets"]
    found = find(later, "root", "apiexports", "tenancy.kcp.io")
    assert found["status"] == {"identityHash": "f" * 64}
