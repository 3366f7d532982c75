"""admin.kubeconfig: kcp's clusters, users and contexts, written at each start and read back at the next.

External tools count on the names: contexts root, base, system:admin, shard-base; users kcp-admin, shard-admin.
"""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from atoll.machinery.apiserver.authentication.admin_tokens import AdminTokens
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.pki import write_private

FILE_NAME = "admin.kubeconfig"
_CLUSTERS = {"root": "/clusters/root", "base": "", "system:admin": "/clusters/system:admin"}
_CONTEXTS = {
    "root": ("root", "kcp-admin"), "base": ("base", "kcp-admin"),
    "system:admin": ("system:admin", "shard-admin"), "shard-base": ("base", "shard-admin"),
}  # fmt: skip


def admin_kubeconfig(url: str, ca_pem: bytes, tokens: AdminTokens) -> Object:
    """The kubeconfig of a shard at `url` (scheme, host and port)."""
    authority = base64.b64encode(ca_pem).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": url + path, "certificate-authority-data": authority}}
            for name, path in _CLUSTERS.items()
        ],
        "users": [
            {"name": "kcp-admin", "user": {"token": tokens.kcp_admin}},
            {"name": "shard-admin", "user": {"token": tokens.shard_admin}},
        ],
        "contexts": [
            {"name": name, "context": {"cluster": cluster, "user": user}}
            for name, (cluster, user) in _CONTEXTS.items()
        ],
        "current-context": "root",
    }


def write(root: Path, url: str, ca_pem: bytes, tokens: AdminTokens) -> Path:
    """Write the file, readable by its owner alone. Contexts that a user added are not kept."""
    path = root / FILE_NAME
    text = yaml.safe_dump(admin_kubeconfig(url, ca_pem, tokens), sort_keys=False)
    write_private(path, text.encode())
    return path


def kept_admin_token(root: Path) -> str:
    """The shard-admin's token of an earlier start; empty if there is none to be read."""
    try:
        found = yaml.safe_load((root / FILE_NAME).read_text())
        users = {entry["name"]: entry["user"] for entry in found["users"]}
        return str(users["shard-admin"]["token"])
    except (OSError, KeyError, TypeError, yaml.YAMLError):
        return ""
