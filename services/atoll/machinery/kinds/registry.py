"""The built-in kinds, in the order of discovery.

The catalogue of every logical cluster begins with these; kinds of tenants come after them and cannot replace them. The
order of groups is Kubernetes' order of `/apis`: a resource name without a group resolves to the first group that has
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from atoll.machinery.kinds import reviews
from atoll.machinery.kinds.admissionregistration.mutatingpolicies import (
    MUTATINGADMISSIONPOLICIES,
    MUTATINGADMISSIONPOLICYBINDINGS,
)
from atoll.machinery.kinds.admissionregistration.validatingpolicies import (
    VALIDATINGADMISSIONPOLICIES,
    VALIDATINGADMISSIONPOLICYBINDINGS,
)
from atoll.machinery.kinds.admissionregistration.webhooks import (
    MUTATINGWEBHOOKCONFIGURATIONS,
    VALIDATINGWEBHOOKCONFIGURATIONS,
)
from atoll.machinery.kinds.apiextensions.customresourcedefinitions import CUSTOMRESOURCEDEFINITIONS
from atoll.machinery.kinds.certificates.signingrequests import CERTIFICATESIGNINGREQUESTS
from atoll.machinery.kinds.coordination.leases import LEASES
from atoll.machinery.kinds.core.configmaps import CONFIGMAPS
from atoll.machinery.kinds.core.events import EVENTS
from atoll.machinery.kinds.core.namespaces import NAMESPACES
from atoll.machinery.kinds.core.resourcequotas import RESOURCEQUOTAS
from atoll.machinery.kinds.core.secrets import SECRETS
from atoll.machinery.kinds.core.serviceaccounts import SERVICEACCOUNTS
from atoll.machinery.kinds.events.events import EVENTS_V1
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.rbac.bindings import CLUSTERROLEBINDINGS, ROLEBINDINGS
from atoll.machinery.kinds.rbac.roles import CLUSTERROLES, ROLES

NATIVE: tuple[Kind, ...] = (
    CONFIGMAPS,
    EVENTS,
    NAMESPACES,
    RESOURCEQUOTAS,
    SECRETS,
    SERVICEACCOUNTS,
    EVENTS_V1,
    reviews.SELFSUBJECTREVIEWS,
    reviews.TOKENREVIEWS,
    reviews.LOCALSUBJECTACCESSREVIEWS,
    reviews.SELFSUBJECTACCESSREVIEWS,
    reviews.SELFSUBJECTRULESREVIEWS,
    reviews.SUBJECTACCESSREVIEWS,
    CERTIFICATESIGNINGREQUESTS,
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    ROLEBINDINGS,
    ROLES,
    MUTATINGADMISSIONPOLICIES,
    MUTATINGADMISSIONPOLICYBINDINGS,
    MUTATINGWEBHOOKCONFIGURATIONS,
    VALIDATINGADMISSIONPOLICIES,
    VALIDATINGADMISSIONPOLICYBINDINGS,
    VALIDATINGWEBHOOKCONFIGURATIONS,
    CUSTOMRESOURCEDEFINITIONS,
    LEASES,
)

_BY_RESOURCE: Mapping[tuple[str, str], Kind] = MappingProxyType({(kind.group, kind.plural): kind for kind in NATIVE})


def native_kind(group: str, plural: str) -> Kind | None:
    """Return the built-in kind of a resource, or None. Each is served in v1 only."""
    return _BY_RESOURCE.get((group, plural))
