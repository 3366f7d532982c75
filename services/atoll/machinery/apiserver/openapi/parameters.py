"""Query and path parameters of operations, by name, for both versions of OpenAPI.

`routes` assigns them to operations. Only supported parameters are listed: Kubernetes' `shardSelector` and
`ignoreStoreReadErrorWithClusterBreakingPotential` are not.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.objects import Object


class Parameter(msgspec.Struct, frozen=True):
    """One parameter. `where` is query or path; those of the path are required."""

    name: str
    type: str
    description: str
    where: str = "query"

    @property
    def v3(self) -> Object:
        """As OpenAPI v3 has it."""
        schema = {"type": self.type, "uniqueItems": True}
        return {**self._head, "schema": schema}

    @property
    def v2(self) -> Object:
        """As OpenAPI v2 has it."""
        return {**self._head, "type": self.type, "uniqueItems": True}

    @property
    def _head(self) -> Object:
        required = {"required": True} if self.where == "path" else {}
        return {"name": self.name, "in": self.where, "description": self.description, **required}


_WATCHED = "Only for watches. "
_DESCRIPTIONS: dict[str, tuple[str, str]] = {
    "allowWatchBookmarks": ("boolean", f"{_WATCHED}Ask for BOOKMARK events, which carry a revision and no change."),
    "continue": ("string", "The continue token of the page before; every other parameter must be as it was there."),
    "dryRun": ("string", "With `All`, the request is checked in full and nothing is stored."),
    "fieldManager": ("string", "Who writes: the name under which changed fields are owned. Up to 128 characters."),
    "fieldSelector": ("string", "Only objects whose fields are as this says. All if absent."),
    "fieldValidation": (
        "string",
        "What becomes of unknown and repeated fields: `Ignore` drops them silently, `Warn` (the default) "
        "says so in a warning header, `Strict` refuses the request.",
    ),
    "gracePeriodSeconds": ("integer", "Seconds that the object is left to end by itself; 0 is at once."),
    "labelSelector": ("string", "Only objects whose labels are as this says. All if absent."),
    "limit": ("integer", "At most so many objects; if there are more, the answer has a token to continue with."),
    "orphanDependents": ("boolean", "Deprecated, use propagationPolicy: whether dependents stay."),
    "pretty": ("string", "With `true`, JSON is indented. So it is by default for browsers, curl and wget."),
    "propagationPolicy": ("string", "What becomes of dependents: `Orphan`, `Background` or `Foreground`."),
    "resourceVersion": ("string", "The revision to read at or to watch from; resourceVersionMatch says how."),
    "resourceVersionMatch": ("string", "How resourceVersion binds a list: `Exact` or `NotOlderThan`."),
    "sendInitialEvents": (
        "boolean",
        f"{_WATCHED}Begin with an ADDED for every object there is and a bookmark that says so.",
    ),
    "timeoutSeconds": ("integer", "After so many seconds the request ends, whatever happens."),
    "watch": ("boolean", "Do not list but follow: the answer is a stream of changes."),
}

#: All query parameters.
QUERY: dict[str, Parameter] = {name: Parameter(name, type, text) for name, (type, text) in _DESCRIPTIONS.items()}
#: An apply requires a field manager, and may force conflicts.
APPLIED = Parameter(
    "fieldManager", "string", QUERY["fieldManager"].description + " An apply must have it; other patches need not."
)
FORCE = Parameter("force", "boolean", "Only for applies. Take over fields that somebody else owns.")
NAMESPACE = Parameter("namespace", "string", "The namespace the request is about.", "path")

_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_SELECT = (
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
)
_LIST = ("allowWatchBookmarks", *_SELECT, "watch")
_BY_ACTION: dict[str, tuple[str, ...]] = {
    "get": (),
    "list": _LIST,
    "watch": _LIST,
    "watchlist": _LIST,
    "post": _WRITE,
    "put": _WRITE,
    "patch": ("dryRun", "fieldValidation"),
    "delete": _DELETE,
    "deletecollection": (*_SELECT, *_DELETE),
}

_OF_CUSTOM = {"deletecollection": _LIST, "get": ("resourceVersion",)}


def name_of(kind: str) -> Parameter:
    """The path parameter `name` of a kind."""
    return Parameter("name", "string", f"The name of the {kind}.", "path")


def of_action(action: str, *, builtin: bool) -> list[Parameter]:
    """Return the query parameters of an operation, sorted by name.

    As in Kubernetes, deletecollection of custom objects has the parameters of a list, and only a get of custom objects
    has resourceVersion.
    """
    names = _BY_ACTION[action] if builtin else _OF_CUSTOM.get(action, _BY_ACTION[action])
    found = [QUERY[name] for name in ("pretty", *names)]
    if action == "patch":
        found += [APPLIED, FORCE]
    return sorted(found, key=lambda each: each.name)
