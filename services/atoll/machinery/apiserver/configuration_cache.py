"""Answers that requests need again and again: where a path leads, who may do what in a cluster, which kind serves it.

The pipeline asks for it once for each request; steps add what they found. Invariant: an entry is used only while no row
of the types that it derives from has changed in any cluster, local or replicated, which is read in the request's own
transaction. Bounded in entries and in the length of their keys.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from atoll.machinery.apiserver.authorization import state_versions
from atoll.machinery.apiserver.authorization.attributes import Decision
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.types import API_CONVERSIONS, API_RESOURCE_SCHEMAS, CRDS
from atoll.machinery.storage.contract import Snapshot

#: Types that decisions, gates and catalogues derive from.
TYPES = (*state_versions.SOURCES, CRDS, API_CONVERSIONS, API_RESOURCE_SCHEMAS)
#: Of each table; a full one starts afresh.
MAX_ENTRIES = 4096
#: Targets of requests above this length are answered without the cache: anybody chooses them.
MAX_TARGET_BYTES = 512


class Access(msgspec.Struct):
    """The decision about a user's requests for one verb, resource and namespace of a cluster.

    `served`: the gate of the cluster lets them pass. `kind` is set once it is found to serve them.
    """

    decision: Decision
    served: bool = False
    kind: Kind | None = None


class Configuration(msgspec.Struct):
    """The answers that hold together. `targets` are clusters by workspace path."""

    targets: dict[str, str] = {}
    accesses: dict[Hashable, Access] = {}

    def add_target(self, workspace: str, cluster: str) -> None:
        """Keep where a path leads."""
        if len(self.targets) >= MAX_ENTRIES:
            self.targets.clear()
        self.targets[workspace] = cluster

    def add_access(self, key: Hashable, access: Access) -> None:
        """Keep a decision that holds while the configuration stands."""
        if len(self.accesses) >= MAX_ENTRIES:
            self.accesses.clear()
        self.accesses[key] = access


class ConfigurationCache:
    """The configuration as of the last request. `types` are further ones that paths are resolved by."""

    def __init__(self, types: Sequence[ResourceType]) -> None:
        self._types = (*TYPES, *types)
        self._transaction = -1
        self._stamp: object = None
        self._configuration = Configuration()

    def at(self, snapshot: Snapshot) -> Configuration:
        """Return the answers that hold in a snapshot."""
        if snapshot.transaction != self._transaction:
            self._follow(snapshot)
        return self._configuration

    def _follow(self, snapshot: Snapshot) -> None:
        stamp = snapshot.stamp(self._types)
        if stamp != self._stamp:
            self._configuration, self._stamp = Configuration(), stamp
        self._transaction = snapshot.transaction
