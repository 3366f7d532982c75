"""Names of the edge layer: its API group, keys of labels and annotations, references to objects.

Controllers, views and syncers use the same ones. Keys that the wire has in common with KubeStellar are exactly its own.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.objects import Object

GROUP, VERSION = "edge.kubestellar.io", "v2alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

#: The SyncerConfig that the placement translator keeps; further parts are `the-one-2`, `the-one-3`, ...
THE_ONE = "the-one"
#: Namespace of results of the edge layer in a workload workspace; nothing of it is ever copied.
REPORT_NAMESPACE = "kubestellar-report"

#: Label of a SinglePlacementSlice: the name of its EdgePlacement.
SOURCE_PLACEMENT = f"{GROUP}/source-placement"
#: Label, with the value PROJECTED_VALUE, of every object that the placement translator writes in a mailbox.
PROJECTED, PROJECTED_VALUE = f"{GROUP}/projected", "yes"
#: Annotation of a mailbox copy: the logical clusters that it comes from, sorted, separated by commas.
SOURCES = f"{GROUP}/sources"
#: Annotation of a SyncerConfig: a number that rises with its content, written once all that it lists is in the mailbox.
WHOLE = f"{GROUP}/whole"
#: Annotation of `the-one`: the version of each API group with several, as `group=version,...`.
VERSIONS = f"{GROUP}/versions"
#: Annotation of a source object: in how many places it runs.
EXECUTING_COUNT = "kubestellar.io/executing-count"
#: Annotation of a workload object; `false` has the edge keep what is in the cluster.
OVERWRITE = f"{GROUP}/downsync-overwrite"
#: Annotations of a workload object: its Customizer, as `name` or `namespace/name`, and `true` if its parameters are
#: expanded. The second one is on Customizers too.
CUSTOMIZER, EXPAND = f"{GROUP}/customizer", f"{GROUP}/expand-parameters"
#: Label of all objects that a syncer applies at the edge: the uid of its SyncTarget.
SYNCED_BY = f"{GROUP}/downsynced-by"
#: Annotations of objects at the edge, `Kind/namespace/name` each: made by the syncer, or there before it.
DOWNSYNCED, ADOPTED = f"{GROUP}/downsynced", f"{GROUP}/adopted"
#: Annotation of upsynced objects in the mailbox, `Kind/namespace/name`.
UPSYNCED = f"{GROUP}/upsynced"
#: Annotation of upsynced objects that belong to a placed one: that one, `Kind/namespace/name`.
ASSOCIATED_WITH = f"{GROUP}/associated-with"
#: Annotation of mailbox objects: the uid of the edge cluster and the resourceVersion there of what came up.
EDGE_REVISION = f"{GROUP}/edge-revision"
#: Views, `/services/<name>/clusters/<workspace>`: for a syncer, and a workspace as it is for edge clusters.
MAILBOX_VIEW, EDGE_VIEW = "mailbox", "edge-view"
#: The Lease in a mailbox by which its syncer is known to live.
LEASE_NAMESPACE, LEASE_NAME = "default", "syncer"
#: Field managers of copies in mailboxes and of objects at the edge.
TRANSLATOR, SYNCER = "placement-translator", "kubestellar-syncer"


class ObjectRef(msgspec.Struct, frozen=True, order=True, gc=False):
    """An object of one workspace, mailbox or edge cluster. `namespace` is empty for cluster-scoped kinds."""

    group: str
    resource: str
    namespace: str
    name: str

    @property
    def kind(self) -> tuple[str, str]:
        """Group and resource."""
        return self.group, self.resource


def mark(obj: Object, ref: ObjectRef) -> str:
    """Return the value of marks, which names the object: a controller that copies annotations copies a wrong one."""
    return f"{obj['kind']}/{ref.namespace}/{ref.name}"
