"""What a Workspace shows of its LogicalCluster, read from a stored LogicalCluster without decoding the rest.

The workspace controller compares two of them: a write that leaves it alone, as that of a binding's locks, changes no
Workspace. Invariant: `workspace.desired_workspace` and the deletion of a Workspace read nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from atoll.machinery.meta.wellknown import CLUSTER, PATH


class Owner(msgspec.Struct, frozen=True):
    """The Workspace of a LogicalCluster."""

    cluster: str
    name: str
    uid: str = ""


class _Annotations(msgspec.Struct, frozen=True):
    cluster: str = msgspec.field(default="", name=CLUSTER)
    path: str = msgspec.field(default="", name=PATH)


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    annotations: _Annotations = _Annotations()
    deletion_timestamp: str = ""


class _Spec(msgspec.Struct, frozen=True):
    owner: Owner | None = None


class MirroredState(msgspec.Struct, frozen=True):
    """Equal ones give the same Workspace. `status` is the stored text, whose keys are sorted."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: msgspec.Raw = msgspec.Raw()


#: Reads a stored LogicalCluster. Raises msgspec.DecodeError.
mirrored_state: Callable[[bytes], MirroredState] = msgspec.json.Decoder(MirroredState).decode
