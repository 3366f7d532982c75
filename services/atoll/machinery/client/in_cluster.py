"""The API server of the cluster that a pod runs in, and the pod's service account.

Kubernetes mounts both into a pod. Callers: processes that run as pods, where no kubeconfig is given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from atoll.machinery.client.target import Entry, Target, make_target

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_cluster(environment: Mapping[str, str] = os.environ) -> Target:
    """The server around, with the token of the pod as it is now. Raises KubeconfigError where there is none."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    server = f"https://{f'[{host}]' if ':' in host else host}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}"
    entry = Entry("the cluster", {"server": server, "certificate-authority": "ca.crt"}, IN_CLUSTER)
    return make_target(entry, Entry("the pod", {"tokenFile": "token"}, IN_CLUSTER))
