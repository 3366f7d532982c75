"""Which requests a webhook or a policy acts on: rules, excluded rules, matchPolicy and selectors.

Webhook configurations, policies of both kinds and bindings share it. A `Criteria` is made once from the stored object
and matched with the `Request` of each write; both are plain values, nothing here reads the store. As in Kubernetes,
selectors decide before rules, and a namespace that does not exist is an error only for what otherwise matches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import LabelSelector, compile_label_selector
from atoll.machinery.meta.status import Details, NotFound

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"

#: What a part of a configuration takes besides its values: the tests of selectors, its place among shared parts.
PART_BYTES = 512

_ALL = "*"
_NAMESPACES = ("", "namespaces")
_EXEMPT_GROUP = "admissionregistration.k8s.io"


def _no_namespace() -> Object | None:
    return None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One write, as rules and selectors see it.

    `namespace` is that of the object, for a Namespace its own name, and empty for other cluster-scoped objects. `name`
    is empty while it is not generated. `obj` is None for DELETE, `old` for CREATE; for a subresource with a kind of its
    own (Scale, TokenRequest) both are of that kind. `namespace_object` returns the stored Namespace, None if there is
    none; it is called only where a selector looks at it. `equivalents` are the other versions of the same resource, in
    the order in which they are tried.
    """

    operation: str
    kind: Kind
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    obj: Object | None = None
    old: Object | None = None
    namespace_object: Callable[[], Object | None] = _no_namespace
    equivalents: tuple[Kind, ...] = ()

    @property
    def display_name(self) -> str:
        """The name in messages: for an object that has none yet its prefix."""
        metadata = (self.obj or {}).get("metadata") or {}
        return self.name or str(metadata.get("name") or metadata.get("generateName") or "Unknown")

    @property
    def is_namespace(self) -> bool:
        return (self.kind.group, self.kind.plural) == _NAMESPACES


def is_exempt(kind: Kind) -> bool:
    """Whether nothing configured acts on a kind: on configurations, policies and bindings themselves."""
    return kind.group == _EXEMPT_GROUP and kind.builtin


class Rule(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of `rules`, `resourceRules` or `excludeResourceRules`. Only those of policies have resourceNames."""

    operations: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: str = _ALL
    resource_names: tuple[str, ...] = ()

    def matches(self, request: Request, kind: Kind) -> bool:
        """Whether the rule covers the request as one for `kind`, the request's own or an equivalent one."""
        return (
            _lists(self.operations, request.operation)
            and _lists(self.api_groups, kind.group)
            and _lists(self.api_versions, kind.version)
            and self._covers(kind.plural, request.subresource)
            and self._is_in_scope(request)
            and (not self.resource_names or request.name in self.resource_names)
        )

    def concerns(self, kind: Kind) -> bool:
        """Whether some request for a kind or its subresources may match."""
        wanted = (kind.plural, _ALL)
        return _lists(self.api_groups, kind.group) and any(each.partition("/")[0] in wanted for each in self.resources)

    def _covers(self, plural: str, subresource: str) -> bool:
        for each in self.resources:
            name, _, sub = each.partition("/")
            if name in (_ALL, plural) and sub in (_ALL, subresource):
                return True
        return False

    def _is_in_scope(self, request: Request) -> bool:
        if self.scope == _ALL:
            return True
        # A request for a Namespace carries its name as namespace; the Namespace itself is cluster-scoped.
        cluster_scoped = not request.namespace or request.is_namespace
        return cluster_scoped == (self.scope == "Cluster")


def _lists(values: tuple[str, ...], wanted: str) -> bool:
    return wanted in values or _ALL in values


class Criteria(msgspec.Struct, frozen=True):
    """What a webhook, policy or binding selects. Without `rules` nothing matches, unless `unrestricted`."""

    rules: tuple[Rule, ...]
    excluded: tuple[Rule, ...]
    equivalent: bool
    namespaces: LabelSelector
    objects: LabelSelector
    unrestricted: bool = False

    @staticmethod
    def of_webhook(webhook: Object) -> Criteria:
        """Return the criteria of one webhook of a stored configuration."""
        return _criteria(webhook, "rules")

    @staticmethod
    def of_match_resources(match: Object | None) -> Criteria:
        """Return the criteria of a policy's matchConstraints or a binding's matchResources.

        Without rules they restrict by their selectors and excluded rules alone.
        """
        return _criteria(match or {}, "resourceRules", unrestricted=True)

    def match(self, request: Request) -> Kind | None:
        """Return the version of the resource in which to present the request, its own where a rule names that; None if
        the request does not match.

        Nothing matches a request for configurations and policies themselves. Raises NotFound if it would match, but its
        namespace does not exist and a selector looks at it.
        """
        if is_exempt(request.kind):
            return None
        selected = self._selects_namespace(request)
        if selected is False or not self._selects_object(request):
            return None
        if self.excluded and self._matched(self.excluded, request) is not None:
            return None
        kind = request.kind if self.unrestricted else self._matched(self.rules, request)
        if kind is not None and selected is None:
            raise NotFound(f'namespaces "{request.namespace}" not found', Details(request.namespace, kind="namespaces"))
        return kind

    def concerns(self, kind: Kind, equivalents: tuple[Kind, ...] = ()) -> bool:
        """Whether some request for a kind may match: what `match` cannot match is left out early."""
        if self.unrestricted:
            return True
        kinds = (kind, *equivalents) if self.equivalent else (kind,)
        return any(rule.concerns(each) for each in kinds for rule in self.rules)

    def covers(self, operation: str) -> bool:
        """Whether some request of an operation may match."""
        return self.unrestricted or any(_lists(rule.operations, operation) for rule in self.rules)

    def _selects_namespace(self, request: Request) -> bool | None:
        """None: the selector looks at a namespace that does not exist."""
        if self.namespaces.matches_everything or (not request.namespace and not request.is_namespace):
            return True
        if request.is_namespace and not request.subresource and request.obj is not None:
            return self.namespaces.matches(_labels(request.obj))
        namespace = request.namespace_object()
        return None if namespace is None else self.namespaces.matches(_labels(namespace))

    def _selects_object(self, request: Request) -> bool:
        if self.objects.matches_everything:
            return True
        found = (each for each in (request.obj, request.old) if each is not None)
        return any(self.objects.matches(_labels(each)) for each in found)

    def _matched(self, rules: tuple[Rule, ...], request: Request) -> Kind | None:
        if any(rule.matches(request, request.kind) for rule in rules):
            return request.kind
        if not self.equivalent:
            return None
        # An earlier rule decides before an earlier version.
        found = (kind for rule in rules for kind in request.equivalents if rule.matches(request, kind))
        return next(found, None)


def _criteria(match: Object, rules: str, *, unrestricted: bool = False) -> Criteria:
    found = _rules(match.get(rules))
    return Criteria(
        rules=found,
        excluded=_rules(match.get("excludeResourceRules")) if unrestricted else (),
        equivalent=match.get("matchPolicy", "Equivalent") == "Equivalent",
        namespaces=compile_label_selector(match.get("namespaceSelector") or {}),
        objects=compile_label_selector(match.get("objectSelector") or {}),
        unrestricted=unrestricted and not found,
    )


def _rules(stored: object) -> tuple[Rule, ...]:
    return msgspec.convert(stored or (), tuple[Rule, ...])


def _labels(obj: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = (obj.get("metadata") or {}).get("labels") or {}
    return found
