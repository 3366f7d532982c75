"""The operations of kinds and fixed documents, for both versions of OpenAPI.

`v3` and `v2` encode them. Ids, tags, actions and status codes are kube-apiserver's: generated clients use them as
names. As in Kubernetes, custom kinds have no watch paths, no strategic patches, no stream types, and no body for
deleting collections.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from atoll.machinery.apiserver.openapi import parameters
from atoll.machinery.apiserver.openapi.parameters import NAMESPACE, Parameter
from atoll.machinery.kinds.kind import Kind, Subresource
from atoll.machinery.meta.objects import Object

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
SCALE = "io.k8s.api.autoscaling.v1.Scale"
TOKEN_REQUEST = "io.k8s.api.authentication.v1.TokenRequest"
JSON, YAML, STREAM = "application/json", "application/yaml", "application/json;stream=watch"

_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_CREATED = ((200, "OK"), (201, "Created"))
_ACCEPTED = (*_CREATED, (202, "Accepted"))
_OK = ((200, "OK"),)
_DELETED = ((200, "OK"), (202, "Accepted"))


class OperationRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. `answer` and `body` are component names; an `answer` of "" is a string, a `body` of "" none."""

    path: str
    method: str
    id: str
    tag: str
    description: str
    answer: str
    body: str = ""
    body_required: bool = True
    consumes: tuple[str, ...] = ("*/*",)
    produces: tuple[str, ...] = (JSON, YAML)
    codes: tuple[tuple[int, str], ...] = _OK
    parameters: tuple[Parameter, ...] = ()
    action: str = ""
    subject: Object | None = None


def key_of(group: str, version: str) -> str:
    """The key of a group version in the index: `api/v1`, `apis/apps/v1`."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def id_part(text: str, *, capital: bool) -> str:
    """Return text as a part of an operation id: letters and digits, a capital after any other character."""
    found: list[str] = []
    for index, letter in enumerate(text):
        if letter.isalpha() or letter == "_" or (index and letter.isdigit()):
            found.append(letter.upper() if capital else letter)
            capital = False
        else:
            capital = True
    return "".join(found)


# --- the operations of a kind ----------------------------------------------------------------------------


def of_kind(kind: Kind, name: str, list_name: str) -> Iterator[OperationRoute]:
    """Yield the operations of a kind, whose component is `name`; `list_name` is empty for a kind without lists."""
    made = _OfKind(kind, name, list_name)
    if "list" in kind.verbs:
        if kind.namespaced:
            yield made.route(f"{made.root}/{kind.plural}", "list", "list", suffix="ForAllNamespaces")
        yield made.route(made.collection, "list", "list")
    if "create" in kind.verbs:
        yield made.route(made.collection, "post", "create")
    if "deletecollection" in kind.verbs:
        yield made.route(made.collection, "deletecollection", "delete", infix="Collection")
    yield from made.of_one()
    for sub in kind.subresources:
        yield from made.of_subresource(sub)
    if kind.builtin and "watch" in kind.verbs:
        yield from made.watches()


#: Verbs on one object, with the action and the word that begins the id; create is for subresources.
_ON_ONE = {
    "get": ("get", "read"),
    "update": ("put", "replace"),
    "patch": ("patch", "patch"),
    "create": ("post", "create"),
    "delete": ("delete", "delete"),
}
_METHODS = {"list": "get", "watch": "get", "watchlist": "get", "deletecollection": "delete"}
_TEXTS = {
    "list": "List objects of kind {kind}, or watch them.",
    "post": "Create an object of kind {kind}.",
    "deletecollection": "Delete every object of kind {kind} that is selected.",
    "get": "Read one {kind}.",
    "put": "Replace one {kind}.",
    "patch": "Change parts of one {kind}.",
    "delete": "Delete one {kind}.",
    "watchlist": "Watch objects of kind {kind}. Deprecated: list with the parameter `watch`.",
    "watch": "Watch one {kind}. Deprecated: list with the parameters `watch` and `fieldSelector`.",
}


class _OfKind:
    """Builds the operations of one kind."""

    def __init__(self, kind: Kind, name: str, list_name: str) -> None:
        self._kind, self._name, self._list_name = kind, name, list_name
        self.root = "/" + key_of(kind.group, kind.version)
        self.within = f"{self.root}/namespaces/{{namespace}}" if kind.namespaced else self.root
        self.collection = f"{self.within}/{kind.plural}"
        group = (kind.group or "core").removesuffix(".k8s.io")
        self._prefix = id_part(group, capital=True) + id_part(kind.version, capital=True)
        self._tag = f"{id_part(group, capital=False)}_{id_part(kind.version, capital=False)}"
        self._subject = {"group": kind.group, "version": kind.version, "kind": kind.kind}

    def of_one(self) -> Iterator[OperationRoute]:
        for verb, (action, word) in _ON_ONE.items():
            if verb in self._kind.verbs and verb != "create":
                yield self.route(f"{self.collection}/{{name}}", action, word)

    def of_subresource(self, sub: Subresource) -> Iterator[OperationRoute]:
        component = {"scale": SCALE, "token": TOKEN_REQUEST}.get(sub.name, self._name)
        builtin = self._kind.builtin
        subject = {"group": sub.group, "version": sub.version, "kind": sub.kind} if builtin else self._subject
        for verb, (action, word) in _ON_ONE.items():
            if verb in sub.verbs:
                made = self.route(f"{self.collection}/{{name}}/{sub.name}", action, word, suffix=sub.name.title())
                body = component if action in {"put", "post"} else made.body
                yield msgspec.structs.replace(made, answer=component, body=body, subject=subject)

    def watches(self) -> Iterator[OperationRoute]:
        kind, scoped = self._kind, self.collection.replace(self.root, f"{self.root}/watch", 1)
        if kind.namespaced:
            yield self.route(f"{self.root}/watch/{kind.plural}", "watchlist", "watch", suffix="ListForAllNamespaces")
        yield self.route(scoped, "watchlist", "watch", suffix="List")
        yield self.route(f"{scoped}/{{name}}", "watch", "watch")

    def route(self, path: str, action: str, word: str, *, infix: str = "", suffix: str = "") -> OperationRoute:
        kind, builtin = self._kind, self._kind.builtin
        scope = "Namespaced" if "{namespace}" in path else ""
        streams = builtin and action in {"list", "watch", "watchlist"}
        return OperationRoute(
            path=path,
            method=_METHODS.get(action, action),
            id=f"{word}{self._prefix}{infix}{scope}{kind.kind}{suffix}",
            tag=self._tag,
            description=_TEXTS[action].format(kind=kind.kind),
            answer=self._answer(action),
            body=self._body(action),
            body_required=action not in {"delete", "deletecollection"},
            consumes=self._consumes(action),
            produces=(JSON, STREAM, YAML) if streams else (JSON, YAML),
            codes=self._codes(action),
            parameters=tuple(self._parameters(path, action)),
            action=action,
            subject=self._subject,
        )

    def _answer(self, action: str) -> str:
        if action == "list":
            return self._list_name
        if action.startswith("watch"):
            return META + "WatchEvent"
        if action == "deletecollection" or (action == "delete" and not self._kind.returns_deleted):
            return META + "Status"
        return self._name

    def _body(self, action: str) -> str:
        if action == "deletecollection" and not self._kind.builtin:
            return ""
        of_action = {"delete": META + "DeleteOptions", "deletecollection": META + "DeleteOptions"}
        return {**of_action, "patch": META + "Patch", "put": self._name, "post": self._name}.get(action, "")

    def _consumes(self, action: str) -> tuple[str, ...]:
        if action == "patch":
            return _PATCHES if self._kind.builtin else _PATCHES[:3]
        return ("*/*",) if self._kind.builtin else (JSON, YAML)

    def _codes(self, action: str) -> tuple[tuple[int, str], ...]:
        created = _CREATED if self._kind.builtin else _OK
        return {"post": _ACCEPTED, "put": _CREATED, "patch": created, "delete": _DELETED}.get(action, _OK)

    def _parameters(self, path: str, action: str) -> Iterator[Parameter]:
        yield from parameters.of_action(action, builtin=self._kind.builtin)
        if "{name}" in path:
            yield parameters.name_of(self._kind.kind)
        if "{namespace}" in path:
            yield NAMESPACE


# --- operations without a kind --------------------------------------------------------------------------------


def of_version(group: str, version: str) -> OperationRoute:
    """The list of resources of a group version."""
    trimmed = (group or "core").removesuffix(".k8s.io")
    prefix = id_part(trimmed, capital=True) + id_part(version, capital=True)
    tag = f"{id_part(trimmed, capital=False)}_{id_part(version, capital=False)}"
    text = "List the resources of this version."
    return _get(f"/{key_of(group, version)}/", f"get{prefix}APIResources", tag, text, "APIResourceList")


def of_root(key: str) -> OperationRoute | None:
    """Return the operation of a key that is no group version; None for an unknown key."""
    if key in _ROOTS:
        return _ROOTS[key]
    prefix, _, group = key.partition("/")
    if prefix != "apis" or not group or "/" in group:
        return None
    trimmed = group.removesuffix(".k8s.io")
    id = f"get{id_part(trimmed, capital=True)}APIGroup"
    return _get(f"/apis/{group}/", id, id_part(trimmed, capital=False), "Describe this group.", "APIGroup")


def _get(path: str, id: str, tag: str, text: str, answer: str) -> OperationRoute:
    return OperationRoute(path=path, method="get", id=id, tag=tag, description=text, answer=META + answer, consumes=())


def _plain(path: str, id: str, tag: str, text: str, kind: str = JSON, answer: str = "") -> OperationRoute:
    return OperationRoute(
        path=path, method="get", id=id, tag=tag, description=text, answer=answer, consumes=(), produces=(kind,)
    )


#: The fixed documents, by key.
_ROOTS: dict[str, OperationRoute] = {
    "api": _get("/api/", "getCoreAPIVersions", "core", "List the versions of the core group.", "APIVersions"),
    "apis": _get("/apis/", "getAPIVersions", "apis", "List the groups.", "APIGroupList"),
    "version": _plain(
        "/version/",
        "getCodeVersion",
        "version",
        "Tell the version of the server.",
        answer="io.k8s.apimachinery.pkg.version.Info",
    ),
    ".well-known/openid-configuration": _plain(
        "/.well-known/openid-configuration/",
        "getServiceAccountIssuerOpenIDConfiguration",
        "WellKnown",
        "Describe the issuer of service account tokens to OpenID clients.",
    ),
    "openid/v1/jwks": _plain(
        "/openid/v1/jwks/",
        "getServiceAccountIssuerOpenIDKeyset",
        "openid",
        "Give the keys that service account tokens are signed with, to verify them by.",
        "application/jwk-set+json",
    ),
}
ROOTS = tuple(_ROOTS)


def by_path(routes: Iterator[OperationRoute]) -> dict[str, tuple[list[Parameter], list[OperationRoute]]]:
    """Routes by path, each path with the parameters that all its operations have; those go out of the routes.

    kube-apiserver writes them down once for a path, and some readers look for them there.
    """
    grouped: dict[str, list[OperationRoute]] = {}
    for route in routes:
        grouped.setdefault(route.path, []).append(route)
    found = {}
    for path, together in grouped.items():
        common = [each for each in together[0].parameters if all(each in route.parameters for route in together[1:])]
        rest = [
            msgspec.structs.replace(route, parameters=tuple(each for each in route.parameters if each not in common))
            for route in together
        ]
        found[path] = (sorted(common, key=lambda each: each.name), rest)
    return found
