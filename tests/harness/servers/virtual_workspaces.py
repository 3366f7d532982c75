"""Stands: one for each sort of virtual workspace, all with the same handles, so that one suite tries them all.

A stand is new for each test. `add`, `change`, `label` and `remove` make the view show a thing, show it changed or
labelled, and not show it any more; `name_of` tells by which name a shown object was added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import yaml

from atoll.machinery.process.resources import schema_path
from harness.clients.api import Api, Object, configmap, crd, define, eventually, workspace_under
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    PATIENCE_S,
    SCHEMAS,
    accepted,
    an_object,
    bind,
    claim,
    cluster_of,
    make_export,
    resource_of,
    schema,
    schema_of,
    unbind,
    wait,
    wait_condition,
)
from harness.servers.third_party_view import ROSTERS, SQUADS, Certificates, ThirdParty, program

CLUSTERS = "/apis/core.kcp.io/v1alpha1/logicalclusters"
TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
CACHED = "/apis/cache.kcp.io/v1alpha1/clustercachedresources"
CACHED_SLICES = "/apis/cache.kcp.io/v1alpha1/clustercachedresourceendpointslices"
TEAMS_GROUP = "teams.example.com"
SQUADS_GROUP = "squads.example.com"
CLAIMS = (
    claim("configmaps", "", "get", "list", "watch"),
    claim("subjectaccessreviews", "authorization.k8s.io", "create"),
)


def viewed(shard_api: Api, prefix: str, token: str = "") -> Api:
    """A user's client of a view."""
    there = Api(shard_api.shard, token=token or shard_api.token)
    there.prefix = prefix
    return there


def offer_plans(provider: Api) -> None:
    """Plans, a cached resource: the provider writes them, and all consumers of the export read them."""
    definition = crd("plans", "plans.example.com", scope="Cluster")
    define(provider, definition)
    meta = {"apiVersion": "cache.kcp.io/v1alpha1", "metadata": {"name": "plans"}}
    spec = {"group": "plans.example.com", "version": "v1", "resource": "plans"}
    provider.post(CACHED, {**meta, "kind": "ClusterCachedResource", "spec": spec})
    ready = wait(provider, f"{CACHED}/plans", lambda obj: (obj.get("status") or {}).get("phase") == "Ready")
    made = schema_of(definition)
    provider.post(SCHEMAS, made)
    reference = {"apiGroup": "cache.kcp.io", "kind": "ClusterCachedResourceEndpointSlice", "name": "plans"}
    virtual = {"reference": reference, "identityHash": ready["status"]["identityHash"]}
    provider.post(
        EXPORTS,
        {
            "apiVersion": "apis.kcp.io/v1alpha2",
            "kind": "APIExport",
            "metadata": {"name": "plans"},
            "spec": {"resources": [resource_of(made, virtual=virtual)]},
        },
    )
    provider.post(
        CACHED_SLICES,
        {
            **meta,
            "kind": "ClusterCachedResourceEndpointSlice",
            "spec": {"clusterCachedResource": {"name": "plans"}, "export": {"name": "plans"}},
        },
    )
    wait_condition(provider, f"{EXPORTS}/plans", "IdentityValid")


class Stand:
    """One view with objects. `api` lists at `path`, `one` reads `path`/name."""

    read_only = True
    #: The verbs that discovery must have.
    verbs = frozenset({"get", "list", "watch"})

    def __init__(self, admin: Api) -> None:
        self.admin = admin
        self.home = admin.at(workspace_under(admin, type_="universal"))
        self.api = self.home
        self.path = ""
        self.stranger = self.home

    def look(self, prefix: str) -> None:
        """Look at a view from now on."""
        self.api, self.stranger = viewed(self.home, prefix), viewed(self.home, prefix, "bob-token")

    def one(self, name: str) -> tuple[Api, str]:
        """The path of a single object in the view."""
        return self.api, f"{self.path}/{name}"

    def name_of(self, obj: Object) -> str:
        return str(obj["metadata"]["name"])

    def add(self, name: str) -> None:
        raise NotImplementedError

    def target(self, name: str) -> tuple[Api, str]:
        """The path at which the object is changed."""
        raise NotImplementedError

    def change(self, name: str) -> None:
        api, path = self.target(name)
        api.patch(path, {"metadata": {"annotations": {"note": "new"}}})

    def label(self, name: str) -> None:
        api, path = self.target(name)
        api.patch(path, {"metadata": {"labels": {"chosen": "yes"}}})

    def changed(self, obj: Object) -> bool:
        return bool((obj["metadata"].get("annotations") or {}).get("note") == "new")

    def remove(self, name: str) -> None:
        api, path = self.target(name)
        api.delete(path)


class Initializing(Stand):
    """Workspaces that wait for an initializer."""

    def __init__(self, admin: Api) -> None:
        super().__init__(admin)
        extend = {"with": [{"name": "universal", "path": "root"}]}
        self.home.post(
            f"{TENANCY}/workspacetypes",
            {
                "apiVersion": "tenancy.kcp.io/v1alpha1",
                "kind": "WorkspaceType",
                "metadata": {"name": "slow"},
                "spec": {"initializer": True, "extend": extend},
            },
        )
        self.initializer = f"{cluster_of(self.home)}:slow"
        self.prefix = f"/services/initializingworkspaces/{self.initializer}/clusters"
        self.look(f"{self.prefix}/*")
        self.path, self._clusters = CLUSTERS, dict[str, str]()
        self._master = Api(admin.shard, user="shard-admin")

    def name_of(self, obj: Object) -> str:
        cluster = obj["metadata"]["annotations"]["kcp.io/cluster"]
        return next((name for name, each in self._clusters.items() if each == cluster), cluster)

    def one(self, name: str) -> tuple[Api, str]:
        return viewed(self.home, f"{self.prefix}/{self._clusters.get(name, 'unheardof')}"), f"{CLUSTERS}/cluster"

    def target(self, name: str) -> tuple[Api, str]:
        return self._master.at(self._clusters[name]), f"{CLUSTERS}/cluster"

    def add(self, name: str) -> None:
        spec = {"type": {"name": "slow", "path": self.home.cluster}}
        self.home.post(
            f"{TENANCY}/workspaces",
            {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec},
        )
        made = wait(self.home, f"{TENANCY}/workspaces/{name}", lambda obj: obj["spec"].get("cluster"))
        self._clusters[name] = made["spec"]["cluster"]

    def remove(self, name: str) -> None:
        api, path = self.one(name)
        found = api.get(path).json
        left = [each for each in found["status"]["initializers"] if each != self.initializer]
        api.patch(f"{path}/status", {"status": {"initializers": left}})


class Exported(Stand):
    """Objects of an export's consumers."""

    read_only = False

    def __init__(self, admin: Api) -> None:
        super().__init__(admin)
        self.schema = schema("circles")
        make_export(self.home, "shapes", self.schema)
        self.consumer = admin.at(workspace_under(admin, type_="universal"))
        bind(self.consumer, self.home.cluster, "shapes")
        self.prefix = f"/services/apiexport/{cluster_of(self.home)}/shapes/clusters"
        self.look(f"{self.prefix}/*")
        self.path = "/apis/shapes.example.com/v1/circles"
        self._own = "/apis/shapes.example.com/v1/namespaces/default/circles"

    def one(self, name: str) -> tuple[Api, str]:
        return viewed(self.home, f"{self.prefix}/{cluster_of(self.consumer)}"), f"{self._own}/{name}"

    def target(self, name: str) -> tuple[Api, str]:
        return self.consumer, f"{self._own}/{name}"

    def add(self, name: str) -> None:
        self.consumer.post(self._own, an_object(self.schema, name))


class BoundSchemas(Stand):
    """Schemas that a workspace binds. One that binds nothing of the system's, so that there may be none."""

    def __init__(self, admin: Api) -> None:
        super().__init__(admin)
        self.consumer = admin.at(workspace_under(admin, type_="universal"))
        for bound in self.consumer.get(BINDINGS).json["items"]:
            unbind(self.consumer, bound["metadata"]["name"])
        prefix = f"/services/apiresourceschema/{cluster_of(self.consumer)}/clusters/*"
        self.look(prefix)
        self.path = SCHEMAS

    def one(self, name: str) -> tuple[Api, str]:
        return viewed(self.home, self.api.prefix.replace("/clusters/*", "")), f"{SCHEMAS}/{self._schema(name)}"

    def _schema(self, name: str) -> str:
        return f"today.{name}s.shapes.example.com"

    def name_of(self, obj: Object) -> str:
        return str(obj["spec"]["names"]["plural"])[:-1] if "spec" in obj else super().name_of(obj).split(".")[1][:-1]

    def target(self, name: str) -> tuple[Api, str]:
        return self.home, f"{SCHEMAS}/{self._schema(name)}"

    def add(self, name: str) -> None:
        make_export(self.home, name, schema(f"{name}s"))
        bind(self.consumer, self.home.cluster, name)

    def remove(self, name: str) -> None:
        unbind(self.consumer, name)


class Replicated(Stand):
    """Objects that a provider offers for reading."""

    def __init__(self, admin: Api) -> None:
        super().__init__(admin)
        offer_plans(self.home)
        self.consumer = admin.at(workspace_under(admin, type_="universal"))
        bind(self.consumer, self.home.cluster, "plans")
        self.prefix = f"/services/replication/{cluster_of(self.home)}/plans/clusters"
        self.look(f"{self.prefix}/*")
        self.path = "/apis/plans.example.com/v1/plans"

    def one(self, name: str) -> tuple[Api, str]:
        return viewed(self.home, f"{self.prefix}/{cluster_of(self.consumer)}"), f"{self.path}/{name}"

    def target(self, name: str) -> tuple[Api, str]:
        return self.home, f"{self.path}/{name}"

    def add(self, name: str) -> None:
        body = {"apiVersion": "plans.example.com/v1", "kind": "Plan", "metadata": {"name": name}}
        self.home.post(self.path, body)


class Edged(Stand):
    """Roles of a workspace as data."""

    read_only = False

    def __init__(self, admin: Api) -> None:
        super().__init__(admin)
        self.look(f"/services/edge-view/clusters/{cluster_of(self.home)}")
        self.path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"

    def target(self, name: str) -> tuple[Api, str]:
        return self.one(name)

    def add(self, name: str) -> None:
        body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": []}
        self.api.post(self.path, body)


def mailbox_view(home: Api) -> Api:
    """The mailbox view of a workspace, which becomes a mailbox by its definitions alone."""
    for plural in ("edgesyncconfigs", "syncerconfigs"):
        define(home, yaml.safe_load(schema_path("edge", f"edge.kubestellar.io_{plural}.yaml").read_text()))
    return viewed(home, f"/services/mailbox/clusters/{cluster_of(home)}")


class CameUp(Stand):
    """Objects of an edge cluster in a mailbox."""

    read_only = False
    verbs = frozenset({"get", "list", "watch", "create", "update", "patch", "delete"})

    def __init__(self, admin: Api) -> None:
        super().__init__(admin)
        define(self.home, crd("circles"))
        self.look(mailbox_view(self.home).prefix)
        self.path = "/apis/shapes.example.com/v1/namespaces/default/circles"
        wanted = {"apiGroup": "shapes.example.com", "resources": ["*"], "namespaces": ["*"], "names": ["*"]}
        config = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "SyncerConfig", "metadata": {"name": "all"}}
        path = "/apis/edge.kubestellar.io/v2alpha1/syncerconfigs"
        self.home.post(path, {**config, "spec": {"upsync": [wanted]}})

    def target(self, name: str) -> tuple[Api, str]:
        return self.one(name)

    def add(self, name: str) -> None:
        metadata = {"name": name, "annotations": {"edge.kubestellar.io/upsynced": f"Circle/default/{name}"}}
        self.api.post(self.path, {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": metadata})


class OfThirdParty:
    """The provider of a third party's views, and their process; consumers come and go."""

    group = TEAMS_GROUP
    claims: Sequence[Object] = CLAIMS
    #: The example in the README, and the names of its definitions by the kinds that the views serve.
    example = ROSTERS
    served: Mapping[str, str] = {"rosters": "ROSTERS"}
    process: type[ThirdParty] = ThirdParty

    def __init__(
        self, admin: Api, certificates: Certificates, directory: Path, environment: dict[str, str] | None = None
    ) -> None:
        self.admin, self.certificates = admin, certificates
        self.provider = admin.at(workspace_under(admin, type_="universal"))
        self._define()
        self.view = self.process(directory, certificates, self.provider, "teams", environment, self.example)
        self.start()
        for name in self.served:
            endpoints = [{"url": self.view.url_of(name), "shards": {"matchAll": True}}]
            self.provider.post(
                f"/apis/{self.group}/v1/viewendpoints",
                {
                    "apiVersion": f"{self.group}/v1",
                    "kind": "ViewEndpoints",
                    "metadata": {"name": name},
                    "status": {"endpoints": endpoints},
                },
            )

    def start(self) -> None:
        """Start the process."""
        self.view.start()

    def _definitions(self) -> dict[str, Object]:
        """The APIResourceSchemas of the example by plural."""
        scope: Object = {}
        exec(program(self.example).partition("if __name__")[0], scope)
        found = {plural: scope[name] for plural, name in self.served.items()}
        return {plural: getattr(each, "definition", each) for plural, each in found.items()}

    def _define(self) -> None:
        endpoints = crd("viewendpoints", self.group, scope="Cluster")
        endpoints["spec"]["names"].update(kind="ViewEndpoints", listKind="ViewEndpointsList")
        version = endpoints["spec"]["versions"][0]
        version["subresources"] = {}
        status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version["schema"]["openAPIV3Schema"]["properties"]["status"] = status
        define(self.provider, endpoints)
        teams = crd("teams", self.group)
        properties = teams["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        properties["spec"]["properties"]["motto"] = {"type": "string"}
        stored = schema_of(teams, "v1")
        resources = [resource_of(stored)]
        self.provider.post(SCHEMAS, stored)
        for plural, definition in self._definitions().items():
            self.provider.post(SCHEMAS, definition)
            reference = {"apiGroup": self.group, "kind": "ViewEndpoints", "name": plural}
            resources.append(resource_of(definition, virtual={"reference": reference, "identityHash": ""}))
        self.provider.post(
            EXPORTS,
            {
                "apiVersion": "apis.kcp.io/v1alpha2",
                "kind": "APIExport",
                "metadata": {"name": "teams"},
                "spec": {"resources": resources, "permissionClaims": list(self.claims)},
            },
        )
        wait_condition(self.provider, f"{EXPORTS}/teams", "IdentityValid")

    def _answers(self, consumer: Api, path: str) -> bool:
        return consumer.get(path, expect=0).code == 200

    def consumer(self) -> Api:
        """A new workspace that binds the API, once the view shows it."""
        there = self.admin.at(workspace_under(self.admin, type_="universal"))
        bind(there, self.provider.cluster, "teams", [accepted(each) for each in self.claims])
        for plural in self.served:
            rows = f"/apis/{self.group}/v1/{plural}"
            eventually(partial(self._answers, there, rows), "the view answers", PATIENCE_S)
        return there


class OfSquads(OfThirdParty):
    """The provider of the views of the README that are written and that join workspaces."""

    group = SQUADS_GROUP
    claims = (
        claim("subjectaccessreviews", "authorization.k8s.io", "create"),
        *(
            claim(plural, "rbac.authorization.k8s.io", "get", "list", "watch")
            for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
        ),
    )
    example = SQUADS
    served: Mapping[str, str] = {"squads": "SQUADS", "clubs": "CLUBS"}


class ThirdPartys(Stand):
    """Rows of a third party's view, at a consumer's own URL."""

    def __init__(self, admin: Api, site: OfThirdParty) -> None:
        super().__init__(admin)
        self.api = site.consumer()
        self.stranger = Api(admin.shard, self.api.cluster, token="bob-token")
        self.path = f"/apis/{TEAMS_GROUP}/v1/namespaces/default/rosters"
        self._teams = f"/apis/{TEAMS_GROUP}/v1/namespaces/default/teams"

    def target(self, name: str) -> tuple[Api, str]:
        return self.api, f"{self._teams}/{name}"

    def add(self, name: str) -> None:
        self.api.post("/api/v1/namespaces/default/configmaps", configmap(name, {"ann": ""}))
        body = {"apiVersion": f"{TEAMS_GROUP}/v1", "kind": "Team", "metadata": {"name": name}}
        self.api.post(self._teams, body)

    def change(self, name: str) -> None:
        self.api.patch(f"/api/v1/namespaces/default/configmaps/{name}", {"data": {"bo": ""}})

    def changed(self, obj: Object) -> bool:
        return bool(obj["spec"]["size"] == 2)


class WrittenThirdPartys(Stand):
    """Rows of a third party's view that is written, at a consumer's own URL."""

    read_only = False
    verbs = frozenset({"get", "list", "watch", "create", "update", "patch", "delete"})

    def __init__(self, admin: Api, site: OfSquads) -> None:
        super().__init__(admin)
        self.api = site.consumer()
        self.stranger = Api(admin.shard, self.api.cluster, token="bob-token")
        self.path = f"/apis/{SQUADS_GROUP}/v1/namespaces/default/squads"

    def target(self, name: str) -> tuple[Api, str]:
        return self.one(name)

    def add(self, name: str) -> None:
        body = {"apiVersion": f"{SQUADS_GROUP}/v1", "kind": "Squad", "metadata": {"name": name}}
        self.api.post(self.path, {**body, "spec": {"motto": "win"}})
