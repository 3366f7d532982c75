"""The parameters of an export's policies as other shards have them: one replicated row for each binding.

The exporter's shard writes the rows (`controllers.exports.policy_parameters`); `parameters` reads them where a policy's
cluster is on another shard. No kind serves their type, so nothing but the look-up of parameters shows them. A row holds
the objects as the policy sees them, in the version of its paramKind, so a reader needs no definition of their kind.
Invariant: a row counts only for the paramKind and the paramRef that it was made for.
"""

from __future__ import annotations

import hashlib

import msgspec

from atoll.machinery.apiserver.admission.policies.errors import ConfigurationError
from atoll.machinery.apiserver.admission.policies.policy import Binding, BoundPolicy, ParamKind, ParamRef
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import FederatedView, federated
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.types import POLICY_PARAMETERS


class ParameterRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a row says. `params` are the JSON texts of the objects in key order; `error` tells why there are none.

    They are texts so that nothing which searches the bytes of stored objects takes their metadata for the row's.
    """

    reference: str
    namespaced: bool = False
    error: str = ""
    params: tuple[str, ...] = ()


class _Stored(msgspec.Struct, frozen=True):
    spec: ParameterRow


class _Decoded(msgspec.Struct, frozen=True):
    """A row at a revision, with its objects. Labels were matched where it was written."""

    revision: int
    row: ParameterRow
    objects: tuple[Object, ...]
    size_bytes: int


_decoder = msgspec.json.Decoder(_Stored)


def row_key(cluster: str, binding: Binding) -> ObjectKey:
    """Return the key of a binding's row."""
    return ObjectKey(POLICY_PARAMETERS, cluster, "", f"{binding.kind.lower()}.{binding.name}")


def reference_of(kind: ParamKind, ref: ParamRef) -> str:
    """Return a hash of all that decides which objects a row holds."""
    return hashlib.sha256(encode_json([str(kind), ref.name, ref.namespace, str(ref.selector)])).hexdigest()


def is_remote(view: View, cluster: str) -> bool:
    """Whether a cluster answers from replicas."""
    wide = federated(view)
    return isinstance(wide, FederatedView) and not wide.is_local(cluster)


class ReplicatedParameters:
    """Reads rows. Decoded ones are kept by revision, in at most `max_bytes` of their JSON; one per event loop."""

    def __init__(self, max_bytes: int) -> None:
        self._rows: LruCache[ObjectKey, _Decoded] = LruCache(max_bytes, lambda found: 256 + found.size_bytes)

    def of(self, view: View, bound: BoundPolicy, binding: Binding) -> tuple[bool, tuple[Object, ...]]:
        """Return whether the kind of a binding's parameters is namespaced, and all objects that it may name.

        Raises ConfigurationError while they are not here, and where they are not replicated.
        """
        params = bound.policy.params
        assert params is not None and binding.params is not None
        found = self._read(view, row_key(bound.cluster, binding))
        if found is None or found.row.reference != reference_of(params, binding.params):
            raise ConfigurationError(f"parameters of the logical cluster {bound.cluster} have not arrived yet")
        if found.row.error:
            raise ConfigurationError(found.row.error)
        return found.row.namespaced, found.objects

    def _read(self, view: View, key: ObjectKey) -> _Decoded | None:
        revision, cached = view.replicas.revision_of(key), self._rows.get(key)
        if cached is not None and cached.revision == revision:
            return cached
        record = view.replicas.get(key)
        if record is None:
            return None
        row = _decoder.decode(record.value).spec
        objects = tuple(decode(text.encode()) for text in row.params)
        found = _Decoded(record.revision, row, objects, len(record.value))
        self._rows.put(key, found)
        return found
