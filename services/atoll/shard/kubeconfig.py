"""admin.kubeconfig: kcp's clusters, users and contexts, brought up to date at each start and read back at the next.

External tools count on the names: contexts root, base, system:admin, shard-base; users kcp-admin, shard-admin. The file
is also where people work: `kubectl ws` keeps its contexts in it. So a start merges into it. Ours get address, authority
and tokens of today; what others added stays, but for clusters at our old address, which move to the new one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import structlog
import yaml

from atoll.machinery.apiserver.authentication.admin_tokens import AdminTokens
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.pki import write_private

log = structlog.get_logger()

FILE_NAME = "admin.kubeconfig"
#: kcp's context for what goes straight to a shard.
SHARD_BASE = "shard-base"
_CLUSTERS = {"root": "/clusters/root", "base": "", "system:admin": "/clusters/system:admin"}
_CONTEXTS = {
    "root": ("root", "kcp-admin"),
    "base": ("base", "kcp-admin"),
    "system:admin": ("system:admin", "shard-admin"),
    SHARD_BASE: ("base", "shard-admin"),
}
_AUTHORITY = "certificate-authority-data"
#: The lists of a kubeconfig, and what the entries of each hold beside their name.
_PARTS = {"clusters": "cluster", "users": "user", "contexts": "context"}


def admin_kubeconfig(url: str, ca_pem: bytes, tokens: AdminTokens) -> Object:
    """The kubeconfig of a shard at `url` (scheme, host and port), as it is on the first start."""
    authority = base64.b64encode(ca_pem).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": url + path, _AUTHORITY: authority}} for name, path in _CLUSTERS.items()
        ],
        "users": [
            {"name": "kcp-admin", "user": {"token": tokens.kcp_admin}},
            {"name": "shard-admin", "user": {"token": tokens.shard_admin}},
        ],
        "contexts": [
            {"name": name, "context": {"cluster": cluster, "user": user}} for name, (cluster, user) in _CONTEXTS.items()
        ],
        "current-context": "root",
    }


def merged(found: Object, ours: Object) -> Object:
    """`found` with our entries as they are today.

    Fields that others set on our entries stay (a context's namespace), as do entries of other names. The current
    context stays if there is such a context. Clusters of others at the address that our `base` had move with it.
    """
    _move(found, ours)
    result = {**ours, **found}
    for part, member in _PARTS.items():
        standing = {entry["name"]: entry for entry in _entries(found, part)}
        for entry in ours[part]:
            before = standing.get(entry["name"], {})
            standing[entry["name"]] = {**before, **entry, member: {**(before.get(member) or {}), **entry[member]}}
        result[part] = list(standing.values())
    if result["current-context"] not in {entry["name"] for entry in result["contexts"]}:
        result["current-context"] = ours["current-context"]
    return result


def write(root: Path, url: str, ca_pem: bytes, tokens: AdminTokens) -> Path:
    """Bring the file of a root directory up to date, readable by its owner alone. Raises OSError."""
    path = root / FILE_NAME
    bring_up_to_date(path, admin_kubeconfig(url, ca_pem, tokens))
    return path


def bring_up_to_date(path: Path, ours: Object) -> None:
    """Write our entries into the file, made 0600 if there is none. Raises OSError."""
    found = _read(path)
    config = ours if found is None else merged(found, ours)
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def kept_admin_token(root: Path) -> str:
    """The shard-admin's token of an earlier start; empty if there is none to be read."""
    found = _read(root / FILE_NAME) or {}
    for entry in _entries(found, "users"):
        if entry["name"] == "shard-admin":
            return str((entry.get("user") or {}).get("token", ""))
    return ""


def _read(path: Path) -> Object | None:
    """The kubeconfig at `path`; None if there is none, or nothing that could be one."""
    try:
        found = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, yaml.YAMLError) as error:
        log.warning("kubeconfig cannot be read", path=str(path), error=type(error).__name__)
        return None
    return found if isinstance(found, dict) else None


def _entries(config: Object, part: str) -> Iterator[Object]:
    """The well-formed entries of one of the lists."""
    found = config.get(part)
    member = _PARTS[part]
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict) and "name" in entry and isinstance(entry.get(member) or {}, dict):
            yield entry


def _move(found: Object, ours: Object) -> None:
    """Give clusters at the old address of `base` the new one, and the new authority where they had the old one."""
    old, new = _base(found), _base(ours)
    if not old.get("server"):
        return
    for entry in _entries(found, "clusters"):
        cluster = entry.get("cluster") or {}
        server = str(cluster.get("server", ""))
        if server != old["server"] and not server.startswith(old["server"] + "/"):
            continue
        cluster["server"] = new["server"] + server.removeprefix(old["server"])
        if cluster.get(_AUTHORITY) == old.get(_AUTHORITY):
            cluster[_AUTHORITY] = new[_AUTHORITY]


def _base(config: Object) -> Object:
    """Address and authority of the cluster `base`."""
    of_base = (entry.get("cluster") for entry in _entries(config, "clusters") if entry["name"] == "base")
    return dict(next(of_base, None) or {})
