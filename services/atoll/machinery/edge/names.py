"""Names of the edge layer: its API group, keys of labels and annotations, references to objects.

Controllers, views and syncers use the same ones. Keys that the wire has in common with KubeStellar are exactly its own.
"""

from __future__ import annotations

import msgspec

GROUP, VERSION = "edge.kubestellar.io", "v2alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

#: Namespace of results of the edge layer in a workload workspace; nothing of it is ever copied.
REPORT_NAMESPACE = "kubestellar-report"

#: Label of a SinglePlacementSlice: the name of its EdgePlacement.
SOURCE_PLACEMENT = f"{GROUP}/source-placement"


class ObjectRef(msgspec.Struct, frozen=True, order=True):
    """An object of one workspace, mailbox or edge cluster. `namespace` is empty for cluster-scoped kinds."""

    group: str
    resource: str
    namespace: str
    name: str

    @property
    def kind(self) -> tuple[str, str]:
        """Group and resource."""
        return self.group, self.resource
