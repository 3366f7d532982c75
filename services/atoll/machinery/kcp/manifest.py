"""Objects that kcp's builders make: `ObjectStamp` gives their metadata, `Manifest` says where each is stored.

Bootstrap and the workspace controller turn manifests into mutations. A stamped object is complete but for its
resourceVersion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from atoll.machinery.meta.conditions import TRUE, ordered
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.wellknown import CLUSTER, PATH


class Manifest(NamedTuple):
    """One object to write. An existing object is not changed unless `reconciled`."""

    cluster: str
    object: Object
    type: ResourceType
    reconciled: bool = False

    @property
    def key(self) -> ObjectKey:
        metadata = self.object["metadata"]
        return ObjectKey(self.type, self.cluster, metadata.get("namespace", ""), metadata["name"])


class ObjectStamp(NamedTuple):
    """Cluster, time and source of uids for new objects.

    `uid` is called with cluster, resource, namespace and name joined by slashes; bootstrap derives the uid
    from them, so that it is the same at each start, everybody else draws a fresh one. `path` is the
    cluster's canonical path, written on the kinds that carry it.
    """

    cluster: str
    path: str
    now: str
    uid: Callable[[str], str]

    def uid_of(self, resource: str, name: str, namespace: str = "") -> str:
        """Return the uid of an object; for bootstrap objects also before their creation."""
        return self.uid(f"{self.cluster}/{resource}/{namespace}/{name}")

    def metadata(
        self,
        resource: str,
        name: str,
        namespace: str = "",
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Object:
        """Metadata of a new object; annotations and labels are copied."""
        metadata: Object = {
            "name": name,
            "uid": self.uid_of(resource, name, namespace),
            "creationTimestamp": self.now,
            "generation": 1,
            "annotations": {CLUSTER: self.cluster, **(annotations or {})},
        }
        if namespace:
            metadata["namespace"] = namespace
        if labels:
            metadata["labels"] = dict(labels)
        return metadata

    def pathed_metadata(self, resource: str, name: str) -> Object:
        """Metadata of a kind that kcp annotates with the cluster's canonical path."""
        return self.metadata(resource, name, annotations={PATH: self.path})

    def holds(self, types: Sequence[str]) -> list[Object]:
        """kcp conditions of these types, all True since now."""
        return ordered({"type": name, "status": TRUE, "lastTransitionTime": self.now} for name in types)
