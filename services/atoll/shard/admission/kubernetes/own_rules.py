"""The order of the plug-ins for Kubernetes' own kinds: that of kube-apiserver, then what its storage does."""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin
from atoll.shard.admission.kubernetes.default_classes import DefaultClasses, GrowingClaims
from atoll.shard.admission.kubernetes.first_status import FirstStatus
from atoll.shard.admission.kubernetes.ip_addresses import HeldAddresses
from atoll.shard.admission.kubernetes.limit_ranges import LimitRanges
from atoll.shard.admission.kubernetes.pod_accounts import PodAccounts
from atoll.shard.admission.kubernetes.priorities import Priorities
from atoll.shard.admission.kubernetes.scheduling import LabelKeys, NodeTaints, RuntimeClasses, Tolerations
from atoll.shard.admission.kubernetes.services import Services
from atoll.shard.admission.kubernetes.storage_protection import StorageProtection


def own_rules() -> list[Plugin]:
    """Return the plug-ins."""
    return [
        LimitRanges(),
        PodAccounts(),
        NodeTaints(),
        Priorities(),
        Tolerations(),
        DefaultClasses(),
        StorageProtection(),
        GrowingClaims(),
        RuntimeClasses(),
        LabelKeys(),
        HeldAddresses(),
        Services(),
        FirstStatus(),
    ]
