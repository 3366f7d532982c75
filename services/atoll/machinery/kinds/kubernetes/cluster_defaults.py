"""What a workspace with Kubernetes' kinds has: ranges of addresses, the address of the API, classes of the system."""

from __future__ import annotations

#: Of a workspace without ServiceCIDRs; each family once, the first is that of a Service that asks for none.
CIDRS = ("10.96.0.0/12", "fd00:10:96::/112")
#: Of the Service `kubernetes`.
API_ADDRESS = "10.96.0.1"
#: Value and description of the PriorityClasses of the system.
SYSTEM_CLASSES = {
    "system-cluster-critical": (2_000_000_000, "For what a cluster cannot do without; may move to another node."),
    "system-node-critical": (2_000_001_000, "For what a node cannot do without; not to be moved from it."),
}
