"""The kinds every cluster of a shard serves: Kubernetes' built-in ones and kcp's system CRDs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from msgspec.structs import replace

from atoll.machinery.kcp.kinds.served_versions import served_in_both
from atoll.machinery.kcp.schema_files import definition
from atoll.machinery.kcp.workspaces.deletion_phase import begin_deletion
from atoll.machinery.kinds.custom import kinds_of_crd
from atoll.machinery.kinds.kind import Kind, ValidationResult
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.kinds.rules.definition import Checks
from atoll.machinery.meta.names import CORE
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.schema.definitions.apiresourceschema import validate_resource_schema

#: CRDs of `system:system-crds`, served in every cluster and not overridable.
SYSTEM_CRDS = (
    "apibindings.apis.kcp.io",
    "apiconversions.apis.kcp.io",
    "apiexportendpointslices.apis.kcp.io",
    "apiexports.apis.kcp.io",
    "apiresourceschemas.apis.kcp.io",
    "clustercachedresourceendpointslices.cache.kcp.io",
    "clustercachedresources.cache.kcp.io",
    "logicalclusters.core.kcp.io",
)


_RESOURCE_SCHEMAS = "apiresourceschemas.apis.kcp.io"
_IN_BOTH_VERSIONS = ("apiexports.apis.kcp.io", "apibindings.apis.kcp.io")
_ESTABLISHED: Object = {"conditions": [{"type": "Established", "status": "True"}]}


@cache
def system_kinds() -> tuple[Kind, ...]:
    """Return every kind of the base catalogue, in discovery order; made once per process.

    Two of kcp's kinds have an older version that differs in more than its apiVersion; `served_in_both` converts them
    without loss, which CRD conversion strategy `None` cannot.
    """
    return (*NATIVE, *(kind for name in SYSTEM_CRDS for kind in _served(definition(name))))


def _served(crd: Object) -> list[Kind]:
    kinds = kinds_of_crd({**crd, "status": _ESTABLISHED}, CORE)
    if crd["metadata"]["name"] in _IN_BOTH_VERSIONS:
        return served_in_both(kinds)
    if crd["metadata"]["name"] == _RESOURCE_SCHEMAS:
        return [_compiling(kind) for kind in kinds]
    return [_deletable(kind) if kind.type == LOGICAL_CLUSTERS else kind for kind in kinds]


def _compiling(kind: Kind) -> Kind:
    """Return the kind that compiles an APIResourceSchema's rules when validated; admission cannot pause for that."""
    own = kind.deferred_validator

    def validator(
        obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Callable[[], None]
    ) -> ValidationResult:
        if old is None:
            validate_resource_schema(obj, rules=Checks(pause))
        return own(obj, old, errors, pause) if own is not None else ValidationResult([], [])

    return replace(kind, deferred_validator=validator)


def _deletable(kind: Kind) -> Kind:
    """Return the kind with a hook that sets phase Terminating or Deleting when deletion begins."""
    return replace(kind, begin_deletion=begin_deletion)
