"""The objects that a binding of an admission policy names in its own cluster, and which of them may leave the shard.

`policy_parameters` asks for them to replicate them. ConfigMaps and custom objects may, Secrets and all other built-in
kinds never, whatever a binding names. Invariant: nothing beyond `Budget` is read into memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from atoll.machinery.apiserver.admission.policies.errors import ConfigurationError
from atoll.machinery.apiserver.admission.policies.parameters import in_version, unknown_kind
from atoll.machinery.apiserver.admission.policies.policy import Binding, ParamKind, ParamRef
from atoll.machinery.apiserver.admission.policies.replicated_parameters import ParameterRow, reference_of
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.names import CORE, ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode, encode_json
from atoll.machinery.meta.selectors import LabelSelector
from atoll.machinery.meta.types import CONFIG_MAPS
from atoll.machinery.storage.contract import LogEntry, Position, Record, Scope, Store
from atoll.machinery.storage.pages import position_after

#: Bounds of the parameters of one workspace; an object that two bindings name counts twice.
MAX_OBJECTS, MAX_BYTES = 256, 512 << 10
#: Bindings of one workspace whose parameters are replicated: each change of an object is matched with all of them.
MAX_BINDINGS = 256
_EXCEED = "parameters are not replicated: those of a logical cluster exceed"
#: Objects read between two yields to the event loop.
_PAGE = 50


def may_be_replicated(type: ResourceType) -> bool:
    """Whether parameters of a type go to other shards: ConfigMaps, and kinds that are not built in."""
    return type == CONFIG_MAPS or type.identity != CORE


class Named(msgspec.Struct, frozen=True):
    """Objects of a type in a cluster: in a namespace or all (""), by name or by labels."""

    type: ResourceType
    namespace: str
    name: str
    selector: LabelSelector | None

    def concerns(self, entry: LogEntry) -> bool:
        """Whether a change may change what is named."""
        if entry.key.type != self.type or self.namespace not in ("", entry.key.namespace):
            return False
        return any(self.selects(entry.key, value) for value in (entry.value, entry.before) if value)

    def selects(self, key: ObjectKey, value: bytes) -> bool:
        """Whether an object of the type and namespace is named."""
        if self.name:
            return key.name == self.name
        return self.selector is not None and self.selector.matches(partial.labels(value))


class Reference(msgspec.Struct, frozen=True):
    """What a binding names; `kind` is None for a paramKind that its cluster does not serve."""

    binding: Binding
    ref: ParamRef
    params: ParamKind
    kind: Kind | None

    @property
    def named(self) -> Named | None:
        """Return the objects; None without a kind."""
        if self.kind is None:
            return None
        namespace = self.ref.namespace if self.kind.namespaced else ""
        return Named(self.kind.type, namespace, self.ref.name, self.ref.selector)


class Budget:
    """What is left of a workspace's bounds."""

    def __init__(self) -> None:
        self._objects, self._bytes = MAX_OBJECTS, MAX_BYTES

    def take(self, size_bytes: int) -> None:
        """Raises ConfigurationError for what is beyond."""
        if not self._objects or size_bytes > self._bytes:
            bounds = f"{MAX_OBJECTS} objects and {MAX_BYTES >> 10} KiB"
            raise ConfigurationError(f"{_EXCEED} {bounds}")
        self._objects, self._bytes = self._objects - 1, self._bytes - size_bytes


def row_beyond(reference: Reference) -> ParameterRow:
    """Return the row of a binding beyond MAX_BINDINGS."""
    text = reference_of(reference.params, reference.ref)
    return ParameterRow(reference=text, error=f"{_EXCEED} {MAX_BINDINGS} bindings")


async def row_of(store: Store, cluster: str, reference: Reference, budget: Budget) -> ParameterRow:
    """Return the row of a binding: its parameters, or why they are not replicated."""
    text, kind, params = reference_of(reference.params, reference.ref), reference.kind, list[str]()
    try:
        if kind is None or (named := reference.named) is None:
            raise unknown_kind(reference.params)
        if not may_be_replicated(kind.type):
            problem = f"parameters of kind {kind.kind} are not replicated: only ConfigMaps and custom objects are"
            raise ConfigurationError(problem)
        async for record in _records(store, cluster, named):
            budget.take(len(record.value))
            params.append(encode_json(in_version(kind, decode(record.value))).decode())
    except ConfigurationError as error:
        return ParameterRow(reference=text, error=str(error))
    return ParameterRow(reference=text, namespaced=kind.namespaced, params=tuple(params))


async def _records(store: Store, cluster: str, named: Named) -> AsyncIterator[Record]:
    scope = Scope(named.type, cluster, named.namespace)
    after: Position | None = None
    while True:
        with store.snapshot() as snapshot:
            page = snapshot.scan(scope, after, _PAGE)
        for record in page:
            if named.selects(record.key, record.value):
                yield record
        if len(page) < _PAGE:
            return
        after = position_after(page[-1].key)
        await asyncio.sleep(0)
