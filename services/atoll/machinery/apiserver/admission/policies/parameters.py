"""The parameters that a binding hands to its policy: objects by name or by selector, in the policy's cluster.

`dispatch` asks for them for each binding that matches. Decoded objects are kept by revision, what a selector matches
while no object of the type changed in the cluster. Invariant: parameters are those of the state in which the write is
planned. Both caches are bounded in bytes; not thread-safe, each event loop has its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.apiserver.admission.policies.policy import ParamKind, ParamRef, Policy
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.kinds.conversion import Unconverted
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, fresh
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.storage.contract import GateState, Record, Scope
from atoll.machinery.storage.pages import each_record

#: Bytes of cached parameters, by the length of their JSON; decoded they take several times as much.
MAX_BYTES = 4 << 20


class ConfigurationError(Exception):
    """A policy or binding cannot be applied; `str()` is Kubernetes' reason."""


class _Found(msgspec.Struct, frozen=True):
    """Objects as of a revision of the object, or of the last change of its type."""

    revision: int
    objects: tuple[Object, ...]
    size_bytes: int


class Parameters:
    """Looks parameters up. `catalogs` tell the kind of a paramKind."""

    def __init__(self, catalogs: Catalogs, max_bytes: int = MAX_BYTES) -> None:
        self._catalogs = catalogs
        self._named: LruCache[ObjectKey, _Found] = LruCache(max_bytes, _size_bytes)
        self._selected: LruCache[tuple[ResourceType, str, str, str], _Found] = LruCache(max_bytes, _size_bytes)

    def kind(self, view: View, policy: Policy) -> Kind | None:
        """Return the kind of a policy's parameters; None if it has none. Raises ConfigurationError if unknown."""
        if policy.params is None:
            return None
        found = resolve_kind(self._catalogs, view, policy.cluster, policy.params)
        if found is None:
            raise ConfigurationError(f"failed to find resource referenced by paramKind: '{policy.params}'")
        return found

    def of(
        self, view: View, cluster: str, kind: Kind | None, ref: ParamRef | None, namespace: str
    ) -> Sequence[Object | None]:
        """Return the parameters to evaluate with, one after the other; None is a request without parameters.

        `namespace` is that of the request. Raises ConfigurationError.
        """
        if kind is None or ref is None:
            return (None,)
        if view.gate(cluster).state is GateState.CLOSED:
            # Its policies are known here, its parameters are not: without them nothing is concluded.
            raise ConfigurationError(f"parameters of the logical cluster {cluster} are on another shard")
        if kind.namespaced:
            namespace = ref.namespace or namespace
            if not namespace:
                text = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                raise ConfigurationError(text)
        elif ref.namespace:
            raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        else:
            namespace = ""
        found = self._find(view, kind, ref, Scope(kind.type, cluster, namespace))
        if not found and ref.required:
            raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [_in_version(kind, obj) for obj in found]

    def _find(self, view: View, kind: Kind, ref: ParamRef, scope: Scope) -> tuple[Object, ...]:
        if ref.name:
            return self._by_name(view, ObjectKey(kind.type, scope.cluster, scope.namespace, ref.name))
        return self._by_selector(view, ref, scope)

    def _by_name(self, view: View, key: ObjectKey) -> tuple[Object, ...]:
        revision, cached = view.revision_of(key), self._named.get(key)
        if cached is not None and revision and cached.revision == revision:
            return cached.objects
        record = view.get(key)
        if record is None:
            return ()
        found = _Found(record.revision, (decode(record.value),), len(record.value))
        if revision:
            self._named.put(key, found)
        return found.objects

    def _by_selector(self, view: View, ref: ParamRef, scope: Scope) -> tuple[Object, ...]:
        key = scope.type, scope.cluster, scope.namespace, str(ref.selector)
        last, cached = view.last(scope.type, scope.cluster), self._selected.get(key)
        if cached is not None and cached.revision == last:
            return cached.objects
        records = [record for record in each_record(view, scope) if _is_selected(ref, record)]
        objects = tuple(decode(record.value) for record in records)
        self._selected.put(key, _Found(last, objects, sum(len(record.value) for record in records)))
        return objects


def resolve_kind(catalogs: Catalogs, view: View, cluster: str, wanted: ParamKind) -> Kind | None:
    """Return the kind that a cluster serves under a group, version and kind, or None."""
    served = catalogs.of(view, cluster).by_version.get((wanted.group, wanted.version), ())
    return next((kind for kind in served if kind.kind == wanted.kind), None)


def _size_bytes(found: _Found) -> int:
    return 256 + found.size_bytes


def _is_selected(ref: ParamRef, record: Record) -> bool:
    checkpoint()
    return ref.selector is not None and ref.selector.matches(partial.labels(record.value))


def _in_version(kind: Kind, obj: Object) -> Object:
    if kind.from_stored is None:
        return obj
    try:
        return kind.from_stored(fresh(obj))
    except Unconverted:
        text = f"failed to convert object version: parameters of kind {kind.kind} are stored in another version"
        raise ConfigurationError(text) from None
