"""The parameters that a binding hands to its policy: objects by name or by selector, in the policy's cluster.

`dispatch` asks for them for each binding that matches. Decoded objects are kept by revision, what a selector matches
while no object of the type changed in the cluster. For a policy of a cluster on another shard they come from what that
shard replicates. Invariant: parameters are those of the state in which the write is planned. Caches are bounded in
bytes; not thread-safe, each event loop has its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.apiserver.admission.policies.errors import ConfigurationError
from atoll.machinery.apiserver.admission.policies.policy import Binding, BoundPolicy, ParamKind, ParamRef
from atoll.machinery.apiserver.admission.policies.replicated_parameters import ReplicatedParameters, is_remote
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.kinds.conversion import Unconverted
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, fresh
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.storage.contract import Record, Scope
from atoll.machinery.storage.pages import each_record

#: Bytes of cached parameters of each kind of look-up, and what a byte of their JSON takes, decoded.
MAX_BYTES, _BYTES_PER_BYTE = 16 << 20, 8


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
        self._replicated = ReplicatedParameters(max_bytes)

    def kind(self, view: View, bound: BoundPolicy) -> Kind | None:
        """Return the kind of a policy's parameters; None if it has none, or if its cluster is on another shard.

        Raises ConfigurationError if unknown.
        """
        params = bound.policy.params
        if params is None or is_remote(view, bound.cluster):
            return None
        found = resolve_kind(self._catalogs.for_request(view, bound.cluster), params)
        if found is None:
            raise unknown_kind(params)
        return found

    def of(
        self, view: View, bound: BoundPolicy, kind: Kind | None, binding: Binding, namespace: str
    ) -> Sequence[Object | None]:
        """Return the parameters to evaluate with, one after the other; None is a request without parameters.

        `kind` is that of the parameters, `namespace` that of the request. Raises ConfigurationError.
        """
        ref = binding.params
        if bound.policy.params is None or ref is None:
            return (None,)
        found: Sequence[Object]
        if kind is None:
            namespaced, replicated = self._replicated.of(view, bound, binding)
            namespace = _namespace(ref, namespace, namespaced=namespaced)
            found = [each for each in replicated if each["metadata"].get("namespace", "") == namespace]
        else:
            namespace = _namespace(ref, namespace, namespaced=kind.namespaced)
            stored = self._find(view, kind, ref, Scope(kind.type, bound.cluster, namespace))
            found = [in_version(kind, obj) for obj in stored]
        if not found and ref.required:
            raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return found

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


def resolve_kind(catalog: Catalog, wanted: ParamKind) -> Kind | None:
    """Return the kind that a catalogue has under a group, version and kind, or None."""
    served = catalog.by_version.get((wanted.group, wanted.version), ())
    return next((kind for kind in served if kind.kind == wanted.kind), None)


def unknown_kind(wanted: ParamKind) -> ConfigurationError:
    """Return the error of a paramKind that a cluster does not serve."""
    return ConfigurationError(f"failed to find resource referenced by paramKind: '{wanted}'")


def _namespace(ref: ParamRef, requested: str, *, namespaced: bool) -> str:
    """Return the namespace to look in, empty for a cluster-scoped kind. Raises ConfigurationError."""
    if namespaced and not (ref.namespace or requested):
        raise ConfigurationError(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
    if not namespaced and ref.namespace:
        raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    return (ref.namespace or requested) if namespaced else ""


def _size_bytes(found: _Found) -> int:
    return 256 + _BYTES_PER_BYTE * found.size_bytes


def _is_selected(ref: ParamRef, record: Record) -> bool:
    checkpoint()
    return ref.selector is not None and ref.selector.matches(partial.labels(record.value))


def in_version(kind: Kind, obj: Object) -> Object:
    """Return a stored parameter in the version of its kind. Raises ConfigurationError."""
    if kind.from_stored is None:
        return obj
    try:
        return kind.from_stored(fresh(obj))
    except Unconverted:
        text = f"failed to convert object version: parameters of kind {kind.kind} are stored in another version"
        raise ConfigurationError(text) from None
