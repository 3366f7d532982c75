"""The matrix of the apiexport view: generated requests, compared with an independent model of access.

A cell is a workspace in one state of consent, an object (or its collection), a verb, a scope (the named workspace or
all of them) and a caller. `allowed` and `visible` are the model's results; `mistakes` yields the cells in which the
server differs. The model uses consents, verbs and labels, and no code of the product.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from harness.clients.api import APPLY, JSON_PATCH, Api, configmap, workspace_under
from harness.clients.exports import (
    BINDINGS,
    accepted,
    an_object,
    bind,
    claim,
    cluster_of,
    make_export,
    objects_path,
    schema,
    unbind,
    wait,
)
from harness.oracles.claim_labels import applied

RBAC = "/apis/rbac.authorization.k8s.io/v1"
USERS = "owner-token,owner,u-o\nreader-token,reader,u-r\nnobody-token,nobody,u-n\nalice-token,alice,u-a\n"
EXPORT, CIRCLES = "shapes", schema("circles")
CONFIGMAPS, SECRETS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/secrets"
READS = ("get", "list", "watch")
#: A verb is granted if export and binding both name it, so this list has all verbs that a binding may name.
CLAIM = claim("configmaps", "", "*", *READS)
VERBS = (*READS, "create", "update", "patch", "json-patch", "apply", "delete", "deletecollection")
COLLECTIONS = ("list", "watch", "create", "deletecollection")
#: Subresources with their verbs; no object of the view has a scale.
SUBRESOURCES = (("status", "get"), ("status", "update"), ("status", "patch"), ("scale", "get"), ("scale", "update"))
METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "json-patch": "PATCH",
    "apply": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
PATCHES = {"json-patch": JSON_PATCH, "apply": APPLY, "patch": "application/merge-patch+json"}

#: The users, with their rights on the content of the export.
CALLERS = {"owner": VERBS, "reader": READS, "stranger": (), "consumer": ()}
TOKENS = {"owner": "owner-token", "reader": "reader-token", "stranger": "nobody-token", "consumer": "alice-token"}
CHOSEN = {"team": "a"}


class State(NamedTuple):
    """A workspace's consent to the export: `claims` as its binding accepts them, None without a binding."""

    name: str
    claims: tuple[dict[str, Any], ...] | None
    #: Verbs granted on the claimed kind, and the labels of the objects that are granted, None for all.
    verbs: tuple[str, ...] = ()
    labels: dict[str, str] | None = None

    @property
    def bound(self) -> bool:
        return self.claims is not None


STATES = (
    State("unbound", None),
    State("unbound-again", None),
    State("bound", ()),
    State("rejected", (accepted(CLAIM, "Rejected"),)),
    State("accepted", (accepted(CLAIM, matchLabels=CHOSEN),), VERBS, CHOSEN),
    State("reading", (accepted({**CLAIM, "verbs": list(READS)}),), READS),
)


class Target(NamedTuple):
    """One object: its kind in the view, its place, and its labels."""

    sort: str
    path: str
    name: str
    labels: dict[str, str]
    has_status: bool = False


TARGETS = (
    Target("own", objects_path(CIRCLES), "mine", {}, True),
    Target("claimed", CONFIGMAPS, "chosen", CHOSEN),
    Target("claimed", CONFIGMAPS, "other", {"team": "b"}),
    Target("claimed", CONFIGMAPS, "bare", {}),
    Target("unclaimed", SECRETS, "hidden", CHOSEN),
    Target("binding", BINDINGS, EXPORT, {}, True),
    Target("other binding", BINDINGS, "elsewhere", {}, True),
)
WIDE = {target.sort: target.path.replace("/namespaces/default", "") for target in TARGETS}


class Cell(NamedTuple):
    """One request into a named workspace."""

    caller: str
    state: State
    target: Target
    verb: str
    subresource: str = ""

    def __str__(self) -> str:
        what = f"{self.target.sort} {self.target.name}/{self.subresource}".rstrip("/")
        return f"{self.caller}: {self.verb} {what}, workspace {self.state.name}"


def cells(states: tuple[State, ...] = STATES) -> Iterator[Cell]:
    """All of them."""
    for state in states:
        for target in TARGETS:
            for caller in CALLERS:
                yield from (Cell(caller, state, target, verb) for verb in VERBS)
                yield from (Cell(caller, state, target, verb, sub) for sub, verb in SUBRESOURCES)


def allowed(cell: Cell) -> bool:
    """The model's result for a request into a named workspace."""
    verb = "patch" if cell.verb in PATCHES else cell.verb
    if verb not in CALLERS[cell.caller] or not cell.state.bound:
        return False
    sort, sub = cell.target.sort, cell.subresource
    if sub and not (sub == "status" and sort == "own"):
        return False
    if sort == "own":
        return True
    if sort == "claimed":
        wanted = cell.state.labels or {}
        # The selector excludes neither requests on the collection nor creates without labels.
        is_chosen = cell.verb in ("list", "watch", "deletecollection") or wanted.items() <= cell.target.labels.items()
        fills_in = cell.verb == "create" and not cell.target.labels
        return verb in cell.state.verbs and (is_chosen or fills_in)
    if sort in ("binding", "other binding"):
        return verb in READS and (sort == "binding" or verb != "get")
    return False


class Town:
    """A provider with an export, and a workspace in each state of consent, each with one of all objects."""

    def __init__(self, root: Api, states: tuple[State, ...] = STATES) -> None:
        self.root, self.states = root, states
        self.provider = root.at(workspace_under(root, type_="universal"))
        made = make_export(self.provider, EXPORT, CIRCLES, claims=[CLAIM])
        self.home, self.identity = cluster_of(self.provider), made["status"]["identityHash"]
        other = root.at(workspace_under(root, type_="universal"))
        self.other_cluster = schema("squares", "else.example.com")
        make_export(other, "elsewhere", self.other_cluster)
        self._other = other.cluster
        grant(self.provider, "owner", EXPORT, "*")
        grant(self.provider, "reader", EXPORT, *READS)
        self.consumers = {state.name: self._consumer(state) for state in states}
        self.clusters = {name: cluster_of(api) for name, api in self.consumers.items()}
        self._views = {caller: self._view(token) for caller, token in TOKENS.items()}

    def _view(self, token: str) -> Api:
        api = Api(self.root.shard, token=token)
        api.prefix = f"/services/apiexport/{self.home}/{EXPORT}/clusters"
        return api

    def view(self, caller: str) -> Api:
        return self._views[caller]

    def _consumer(self, state: State) -> Api:
        api = self.root.at(workspace_under(self.root, type_="universal"))
        administer(api, "alice")
        bind(api, self._other, "elsewhere")
        bound = state.bound or state.name == "unbound-again"
        if bound:
            given = state.claims if state.claims is not None else (accepted(CLAIM),)
            bind(api, self.provider.cluster, EXPORT, given)
        for target in TARGETS:
            if target.sort in ("claimed", "unclaimed"):
                api.post(target.path, configmap(target.name, labels=target.labels) | _secret(target))
        if bound:
            own = TARGETS[0]
            api.post(own.path, an_object(CIRCLES, own.name, spec={"colour": "red"}))
            applied(api, EXPORT)
        if state.name == "unbound-again":
            unbind(api, EXPORT)
        self._settle(api, state)
        return api

    def _settle(self, api: Api, state: State) -> None:
        """Wait until the objects carry exactly the labels of claims that they should."""
        for target in TARGETS:
            if target.sort == "claimed":
                is_claimed = bool(state.verbs) and (state.labels or {}).items() <= target.labels.items()
                wait(api, f"{target.path}/{target.name}", lambda obj, want=is_claimed: _is_claimed(obj) == want)

    def visible(self, sort: str) -> set[tuple[str, str]]:
        """State and name of the objects that the model makes visible over all workspaces."""
        found = set()
        for state in self.states:
            for target in TARGETS:
                cell = Cell("owner", state, target, "get")
                if target.sort == sort and allowed(cell):
                    found.add((state.name, target.name))
        return found


def _secret(target: Target) -> dict[str, Any]:
    return {"kind": "Secret", "data": {}} if target.sort == "unclaimed" else {}


def _is_claimed(obj: dict[str, Any]) -> bool:
    return any(key.startswith("claimed.internal.apis.kcp.io/") for key in obj["metadata"].get("labels") or {})


def grant(api: Api, user: str, export: str, *verbs: str) -> None:
    """Let a user reach the content of an export."""
    rules = [
        {
            "apiGroups": ["apis.kcp.io"],
            "resources": ["apiexports/content"],
            "resourceNames": [export],
            "verbs": list(verbs),
        },
        {"nonResourceURLs": ["/"], "verbs": ["access"]},
    ]
    name = f"{user}-{export}"
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    bind_role(api, user, name)


def administer(api: Api, user: str) -> None:
    bind_role(api, user, "cluster-admin")


def bind_role(api: Api, user: str, role: str) -> None:
    """Bind a ClusterRole to a user."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    body = {"metadata": {"name": f"{user}-{role}"}, "subjects": subjects, "roleRef": reference}
    api.post(f"{RBAC}/clusterrolebindings", body)


# --- results of the server -------------------------------------------------------------------------------


def body_of(target: Target, verb: str) -> Any:
    """A body that changes something and names nothing but the object."""
    name = "created" if verb == "create" else target.name
    if verb == "json-patch":
        return [{"op": "add", "path": "/metadata/annotations/x", "value": "y"}]
    metadata = {"name": name, **({"labels": target.labels} if target.labels else {})}
    kinds = {"own": ("shapes.example.com/v1", "Circle"), "claimed": ("v1", "ConfigMap"), "unclaimed": ("v1", "Secret")}
    version, kind = kinds.get(target.sort, ("apis.kcp.io/v1alpha2", "APIBinding"))
    if verb == "patch":
        return {"metadata": {"annotations": {"x": "y"}}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def requested(cell: Cell, cluster: str) -> tuple[str, str]:
    """Method and URL of a cell."""
    target, verb = cell.target, cell.verb
    path = target.path if verb in COLLECTIONS else f"{target.path}/{target.name}"
    path += f"/{cell.subresource}" if cell.subresource else ""
    query = {"watch": "?watch=1", "list": "", "get": "", "apply": "?dryRun=All&fieldManager=m&force=true"}
    return METHODS[verb], f"/{cluster}{path}{query.get(verb, '?dryRun=All')}"


def reached(view: Api, cell: Cell, cluster: str) -> bool:
    """Whether the server authorizes a request."""
    method, url = requested(cell, cluster)
    if cell.verb == "watch":
        return opened(view, url)
    has_body = method in ("POST", "PUT", "PATCH")
    data = json.dumps(body_of(cell.target, cell.verb)).encode() if has_body else None
    answer = view.send(method, url, data, kind=PATCHES.get(cell.verb, "application/json") if has_body else "")
    # An apply to the name of a hidden object is a create that fails.
    taken = answer.code == 409 and answer.json["reason"] == "AlreadyExists"
    return answer.code not in {401, 403, 404, 405} and not taken


def opened(view: Api, url: str) -> bool:
    """Whether a watch opens."""
    connection = view.open()
    connection.request("GET", view.prefix + url, headers=view.headers())
    code = connection.getresponse().status
    connection.close()
    return code == 200


def seen(view: Api, town: Town, cluster: str, path: str) -> set[tuple[str, str]] | None:
    """State and name of the matrix objects in a list; None if it is forbidden."""
    answer = view.get(f"/{cluster}{path}", expect=0)
    if answer.code != 200:
        return None
    return _of_states(town, answer.json["items"])


def watched(view: Api, town: Town, cluster: str, path: str) -> set[tuple[str, str]] | None:
    """The same of the initial state of a watch."""
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    if not opened(view, f"/{cluster}{path}?{query}"):
        return None
    found = []
    with view.watch(f"/{cluster}{path}?{query}") as events:
        while (event := events.next()).type != "BOOKMARK":
            found.append(event.object)
    return _of_states(town, found)


def _of_states(town: Town, objects: list[dict[str, Any]]) -> set[tuple[str, str]]:
    states, names = {cluster: name for name, cluster in town.clusters.items()}, {target.name for target in TARGETS}
    placed = [(each["metadata"]["annotations"]["kcp.io/cluster"], each["metadata"]["name"]) for each in objects]
    return {(states.get(cluster, cluster), name) for cluster, name in placed if name in names}


def mistakes(town: Town, only: tuple[str, ...] = tuple(CALLERS)) -> Iterator[str]:
    """Every cell in which the server and the model differ."""
    yield from wide_mistakes(town, only)
    for cell in cells(town.states):
        if cell.caller in only:
            found = reached(town.view(cell.caller), cell, town.clusters[cell.state.name])
            if found != allowed(cell):
                yield f"{cell}: expected {allowed(cell)}"


def wide_mistakes(town: Town, only: tuple[str, ...] = tuple(CALLERS)) -> Iterator[str]:
    """The cells over all workspaces, and what lists and watches show in each of them."""
    for caller in only:
        view, may = town.view(caller), CALLERS[caller]
        for sort, path in WIDE.items():
            known = sort != "unclaimed" and bool(may)
            everything = town.visible(sort) | (town.visible("binding") if sort == "other binding" else set())
            for how in (seen, watched):
                found = how(view, town, "*", path)
                if found != (everything if known else None):
                    yield f"{caller}: {how.__name__} {sort} everywhere: {found}"
                for name, cluster in town.clusters.items():
                    here = {each for each in everything if each[0] == name}
                    listed = Cell(caller, state_of(name), _target(sort), "list")
                    found = how(view, town, cluster, path)
                    if found != (here if allowed(listed) else None):
                        yield f"{caller}: {how.__name__} {sort} in {name}: {found}"
        yield from _wide_writes(view, caller)


def _wide_writes(view: Api, caller: str) -> Iterator[str]:
    for target in TARGETS:
        for verb in VERBS:
            if verb not in ("list", "watch") and reached(view, Cell(caller, STATES[-1], target, verb), "*"):
                yield f"{caller}: {verb} {target.sort} everywhere"


def state_of(name: str) -> State:
    """The state of a name."""
    return next(state for state in STATES if state.name == name)


def _target(sort: str) -> Target:
    return next(target for target in TARGETS if target.sort == sort)
