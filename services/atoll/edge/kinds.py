"""The resources that the controllers of the edge service read and write."""

from __future__ import annotations

from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import GROUP, VERSION

PLACEMENTS = Resource(GROUP, VERSION, "edgeplacements", namespaced=False)
SLICES = Resource(GROUP, VERSION, "singleplacementslices", namespaced=False)
SYNCER_CONFIGS = Resource(GROUP, VERSION, "syncerconfigs", namespaced=False)
SYNC_TARGETS = Resource(GROUP, VERSION, "synctargets", namespaced=False)
LOCATIONS = Resource(GROUP, VERSION, "locations", namespaced=False)
CUSTOMIZERS = Resource(GROUP, VERSION, "customizers")
STATUS_COLLECTORS = Resource(GROUP, VERSION, "statuscollectors", namespaced=False)
STATUS_SUMMARIES = Resource(GROUP, VERSION, "statussummaries")
ASSOCIATED_STATES = Resource(GROUP, VERSION, "associatedstates")
BINDINGS = Resource("apis.kcp.io", "v1alpha2", "apibindings", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases")
EVENTS = Resource("", "v1", "events")
ENDPOINT_SLICES = Resource("apis.kcp.io", "v1alpha1", "apiexportendpointslices", namespaced=False)
