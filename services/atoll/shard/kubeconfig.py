"""admin.kubeconfig: kcp's clusters, users and contexts, updated at each start.

External tools depend on the names: contexts root, base, system:admin, shard-base; users kcp-admin, shard-admin, and
user if its battery is included. Users change the file too: `kubectl ws` stores its contexts in it. So a start merges
into it: the shard's own entries get the current address, CA and tokens; other entries stay, except that clusters at the
shard's old address get the new one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog
import yaml

from atoll.machinery.apiserver.authentication.admin_tokens import AdminTokens
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.private_files import write_private

log = structlog.get_logger()

FILE_NAME = "admin.kubeconfig"
#: kcp's context for direct access to a shard.
SHARD_BASE = "shard-base"
_CLUSTERS = {"root": "/clusters/root", "base": "", "system:admin": "/clusters/system:admin"}
_CONTEXTS = {
    "root": ("root", "kcp-admin"),
    "base": ("base", "kcp-admin"),
    "system:admin": ("system:admin", "shard-admin"),
    SHARD_BASE: ("base", "shard-admin"),
}
_AUTHORITY = "certificate-authority-data"
#: The lists of a kubeconfig, and the field of their entries beside `name`.
_PARTS = {"clusters": "cluster", "users": "user", "contexts": "context"}


def admin_kubeconfig(url: str, ca_pem: bytes, tokens: AdminTokens) -> Object:
    """Return the kubeconfig of a shard at `url` (scheme, host and port), as written on the first start."""
    authority = base64.b64encode(ca_pem).decode()
    users = {"kcp-admin": tokens.kcp_admin, "shard-admin": tokens.shard_admin}
    if tokens.user:
        users["user"] = tokens.user
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": url + path, _AUTHORITY: authority}} for name, path in _CLUSTERS.items()
        ],
        "users": [{"name": name, "user": {"token": token}} for name, token in users.items()],
        "contexts": [
            {"name": name, "context": {"cluster": cluster, "user": user}} for name, (cluster, user) in _CONTEXTS.items()
        ],
        "current-context": "root",
    }


def merge(found: Object, ours: Object) -> Object:
    """Return `found` with the entries of `ours` merged in.

    Fields that users added to these entries stay (a context's namespace), as do entries of other names. The current
    context stays if it exists. Other clusters at the old address of `base` get the new address.
    """
    _move(found, ours)
    result = {**ours, **found}
    for part, member in _PARTS.items():
        entries = {entry["name"]: entry for entry in _entries(found, part)}
        for entry in ours[part]:
            old = entries.get(entry["name"], {})
            entries[entry["name"]] = {**old, **entry, member: {**(old.get(member) or {}), **entry[member]}}
        result[part] = list(entries.values())
    if result["current-context"] not in {entry["name"] for entry in result["contexts"]}:
        result["current-context"] = ours["current-context"]
    return result


def write(path: Path, url: str, ca_pem: bytes, tokens: AdminTokens) -> None:
    """Update the kubeconfig of a shard, with mode 0600. Raises OSError."""
    bring_up_to_date(path, admin_kubeconfig(url, ca_pem, tokens))


def replace_tokens(path: Path, tokens: Mapping[str, str]) -> None:
    """Write new tokens of users of the file into it. Raises OSError."""
    config = _read(path) or {}
    for entry in _entries(config, "users"):
        if entry["name"] in tokens:
            entry["user"] = {**(entry.get("user") or {}), "token": tokens[entry["name"]]}
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def bring_up_to_date(path: Path, ours: Object) -> None:
    """Merge `ours` into the file, which is created with mode 0600 if absent. Raises OSError."""
    found = _read(path)
    config = ours if found is None else merge(found, ours)
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def stored_admin_tokens(path: Path) -> dict[str, str]:
    """Return the tokens of an earlier start by user; empty if absent or unreadable."""
    users = _entries(_read(path) or {}, "users")
    return {entry["name"]: str((entry.get("user") or {}).get("token", "")) for entry in users}


def _read(path: Path) -> Object | None:
    """Return the kubeconfig at `path`; None if it is absent, unreadable or no mapping."""
    try:
        found = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, yaml.YAMLError) as error:
        log.warning("kubeconfig cannot be read", path=str(path), error=type(error).__name__)
        return None
    return found if isinstance(found, dict) else None


def _entries(config: Object, part: str) -> Iterator[Object]:
    """Yield the well-formed entries of one of the lists."""
    found = config.get(part)
    member = _PARTS[part]
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict) and "name" in entry and isinstance(entry.get(member) or {}, dict):
            yield entry


def _move(found: Object, ours: Object) -> None:
    """Set clusters at the old address of `base` to the new one, and the old CA to the new one."""
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
    """Return the cluster `base` with its address and CA; empty if absent."""
    of_base = (entry.get("cluster") for entry in _entries(config, "clusters") if entry["name"] == "base")
    return dict(next(of_base, None) or {})
