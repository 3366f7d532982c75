"""Facts derived from an object's metadata, and the gate derived from a LogicalCluster.

`writing.submit_transaction` calls it for every Put; the facts become flags of the `versions` row and rows of `owners`
and `labels`. Only metadata (and a LogicalCluster's phase) is decoded, through typed partial structs: 1 to 2
microseconds an object. Invariant: a pure function of the object's bytes, so fsck derives the same rows.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.partial import Partial, Phase
from atoll.machinery.storage.contract import Flag, GateState


class _Owner(msgspec.Struct, gc=False):
    uid: str = ""


class _Annotations(msgspec.Struct, gc=False):
    replicate: str | None = msgspec.field(default=None, name=wellknown.REPLICATE)
    workspace_type: str | None = msgspec.field(default=None, name=wellknown.TYPE)
    inactive: str = msgspec.field(default="", name=wellknown.INACTIVE)
    inactive_internal: str = msgspec.field(default="", name=wellknown.INTERNAL_INACTIVE)
    migrating: str = msgspec.field(default="", name=wellknown.MIGRATING)
    moved_to: str = msgspec.field(default="", name=wellknown.MOVED_TO)


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    annotations: _Annotations | None = None
    labels: dict[str, str] | None = None
    deletionTimestamp: str | None = None
    finalizers: list[str] | None = None
    ownerReferences: list[_Owner] | None = None


class _LogicalCluster(Partial[_Metadata], frozen=True, gc=False):
    status: Phase | None = None


class ObjectFacts(msgspec.Struct, frozen=True, gc=False):
    """What indexes keep of one object: flags, uids of its owners, system label pairs."""

    flags: int
    owners: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


# Plain integers: each write asks, and the value of an enum's member is a call.
_FINALIZERS, _DELETING, _OWNED, _LABELLED = (
    flag.value for flag in (Flag.FINALIZERS, Flag.DELETING, Flag.OWNED, Flag.LABELLED)
)
_indexed = msgspec.json.Decoder(Partial[_Metadata])
_logical_cluster = msgspec.json.Decoder(_LogicalCluster)
_NO_ANNOTATIONS = _Annotations()


def facts(value: bytes, label_prefixes: tuple[str, ...]) -> ObjectFacts:
    """Derive the facts of an object from its JSON. Raises msgspec.ValidationError for bad metadata."""
    metadata = _indexed.decode(value).metadata
    flags = _FINALIZERS if metadata.finalizers else 0
    if metadata.deletionTimestamp is not None:
        flags |= _DELETING
    owners = tuple({owner.uid for owner in metadata.ownerReferences}) if metadata.ownerReferences else ()
    notes = metadata.annotations
    is_labelled = metadata.labels or (notes is not None and (notes.replicate or notes.workspace_type))
    labels = _system_labels(metadata, label_prefixes) if is_labelled else ()
    flags |= (_OWNED if owners else 0) | (_LABELLED if labels else 0)
    return ObjectFacts(flags, owners, labels)


def names(value: bytes) -> tuple[str, str]:
    """Return namespace and name of an object whose key holds only their hash."""
    metadata = _indexed.decode(value).metadata
    return metadata.namespace, metadata.name


def _system_labels(metadata: _Metadata, prefixes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = []
    if metadata.labels:
        pairs = [pair for pair in metadata.labels.items() if pair[0].startswith(prefixes)]
    if metadata.annotations is not None and metadata.annotations.replicate:
        pairs.append((wellknown.REPLICATE, ""))
    if metadata.annotations is not None and metadata.annotations.workspace_type:
        pairs.append((wellknown.TYPE, metadata.annotations.workspace_type))
    return tuple(pairs)


def gate_state(value: bytes) -> GateState | None:
    """Return the gate state of a LogicalCluster; None where it only names the shard that has the cluster.

    Scheduling and Unavailable admit only system:masters: kcp's workspace content authorizer gives no opinion there. A
    migrating cluster is closed in any phase; deletion goes on in an inactive one. The phase Inactive follows the
    annotations, which alone take a cluster offline.
    """
    cluster = _logical_cluster.decode(value)
    metadata = cluster.metadata
    notes = metadata.annotations or _NO_ANNOTATIONS
    phase = cluster.status.phase if cluster.status is not None else ""
    if notes.moved_to:
        return None
    if notes.migrating:
        return GateState.MOVING
    if metadata.deletionTimestamp is not None and phase == "Deleting":
        return GateState.DELETING
    if "true" in (notes.inactive, notes.inactive_internal):
        return GateState.INACTIVE
    if phase == "Initializing":
        return GateState.INITIALIZING
    return GateState.OPEN if phase in ("Ready", "Inactive", "Terminating") else GateState.CLOSED
