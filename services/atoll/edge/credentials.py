"""The kubeconfig of `atoll edge-controllers`: one context for each controller's service account.

`atoll edge-init` writes it, the process reads it. Invariant: it holds no credential of an administrator.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.target import CLUSTERS
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.private_files import write_private


def write(file: Path, administrator: Kubeconfig, path: str, tokens: Mapping[str, str]) -> None:
    """Write the file for the server of the administrator's current context. Raises OSError, KubeconfigError."""
    write_private(file, yaml.safe_dump(_kubeconfig(administrator, path, tokens), sort_keys=False).encode())


def _kubeconfig(administrator: Kubeconfig, path: str, tokens: Mapping[str, str]) -> Object:
    cluster = administrator.cluster_of(administrator.current)
    cluster["server"] = f"{cluster['server'].partition(CLUSTERS)[0].rstrip('/')}{CLUSTERS}{path}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "edge", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}} for name, token in tokens.items()],
        "contexts": [{"name": name, "context": {"cluster": "edge", "user": name}} for name in tokens],
        "current-context": next(iter(tokens)),
    }
