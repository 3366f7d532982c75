"""Names and labels that kcp derives by hashing, byte for byte as kcp derives them.

Workspace scheduling, API bindings, lifecycle and the permission claim labeller call these; the results are
stored in labels that kcp's own clients select by, so a changed digit would lose objects.
Pure functions: the same input gives the same text on every shard and in every version.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from functools import lru_cache

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_IDENTITY_DIGITS, _HEXADECIMAL = 64, frozenset("0123456789abcdef")

INITIALIZER_LABEL_PREFIX = "initializer.internal.kcp.io/"
ROOT_PATH_LABEL = "paths.internal.atoll.dev/root"
AWAITED_PATH_LABEL = "paths.internal.atoll.dev/awaited"
AWAITED_WORKSPACE_LABEL = "paths.internal.atoll.dev/awaited-workspace"
AWAITED_EXPORT_LABEL = "paths.internal.atoll.dev/awaited-export"
TERMINATOR_LABEL_PREFIX = "terminator.internal.kcp.io/"
CLAIM_LABEL_PREFIX = "claimed.internal.apis.kcp.io/"
#: On APIBindings: which export they bind (`export_hash`).
EXPORT_LABEL = "internal.apis.kcp.io/export"

#: Label names are cut so that they stay within Kubernetes' 63 characters together with kcp's prefix.
_INITIALIZER_DIGITS = 35
_TERMINATOR_DIGITS = 36
_CLUSTER_NAME_SIZE = 16
_HOME_HASH_SIZE = 8
_SHARD_HASH_SIZE = 8
_BINDING_HASH_SIZE = 5
_BINDING_EXPORT_SIZE = 247
_TOKEN_SIZE = 32

# Shards and exports are few but needed for every workspace, and long division is slow in Python: their hashes are
# cached, with bounds.


def _in_base(data: bytes, base: int) -> str:
    number = int.from_bytes(data, "big")
    if number == 0:
        return "0"
    digits = []
    while number:
        number, digit = divmod(number, base)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def b36(data: bytes) -> str:
    """The bytes as one big-endian number in base 36 (0-9a-z), without padding; zero is `0`."""
    return _in_base(data, 36)


def b62(data: bytes) -> str:
    """The bytes as one big-endian number in base 62 (0-9a-zA-Z), without padding; zero is `0`."""
    return _in_base(data, 62)


def b36_padded(data: bytes) -> str:
    """One `0` for each leading zero *byte*, then the rest in base 36; so the width is not fixed."""
    rest = data.lstrip(b"\0")
    return "0" * (len(data) - len(rest)) + (b36(rest) if rest else "")


def sha224(text: str) -> bytes:
    """SHA-224 of the UTF-8 bytes."""
    return hashlib.sha224(text.encode()).digest()


def cluster_name_of(parent: str, uid: str, shard: str) -> str:
    """The logical cluster behind a Workspace, by its cluster and uid and the first shard it is on.

    It looks like kcp's random names. No other Workspace has the same one, so the name alone proves that a shard may
    create the cluster.
    """
    return b36_padded(sha224(f"{parent}/{uid}/{shard}"))[:_CLUSTER_NAME_SIZE]


def home_cluster_name(user: str) -> str:
    """The logical cluster of a user's home workspace, about 13 characters, the same on every shard."""
    return b36_padded(sha224(user)[:_HOME_HASH_SIZE])


@lru_cache(maxsize=1024)
def root_cluster_name(path: str) -> str:
    """The logical cluster of a root, a path that leads through no Workspace: a path has one cluster.

    A path has no `/`, so no Workspace leads to the same text; a home's name is shorter.
    """
    return b36_padded(sha224(path))[:_CLUSTER_NAME_SIZE]


@lru_cache(maxsize=1024)
def shard_hash(shard: str) -> str:
    """Value of the deprecated annotation `internal.tenancy.kcp.io/shard` on Workspaces."""
    return b36_padded(sha224(shard))[:_SHARD_HASH_SIZE]


def initializer_label(initializer: str) -> tuple[str, str]:
    """Label key and value on a LogicalCluster whose status still lists this initializer."""
    digest = hashlib.sha224(initializer.encode()).hexdigest()
    return INITIALIZER_LABEL_PREFIX + digest[:_INITIALIZER_DIGITS], digest


def terminator_label(terminator: str) -> tuple[str, str]:
    """Label key and value on a LogicalCluster whose status still lists this terminator."""
    digest = hashlib.sha224(terminator.encode()).hexdigest()
    return TERMINATOR_LABEL_PREFIX + digest[:_TERMINATOR_DIGITS], digest


def root_path_label(path: str) -> tuple[str, str]:
    """Label key and value on a LogicalCluster that no Workspace owns and whose path is not its name."""
    return ROOT_PATH_LABEL, hashlib.sha224(path.encode()).hexdigest()


def awaited_workspace_label(cluster: str, name: str) -> tuple[str, str]:
    """Label key and value on an APIBinding without its export: the Workspace that may lead to the export later."""
    return AWAITED_WORKSPACE_LABEL, hashlib.sha224(f"{cluster}/{name}".encode()).hexdigest()


def awaited_export_label(cluster: str, name: str) -> tuple[str, str]:
    """Label key and value on an APIBinding to an export that has not the identity which the binding pins."""
    return AWAITED_EXPORT_LABEL, export_hash(cluster, name)


def awaited_path_label(path: str) -> tuple[str, str]:
    """Label key and value on an APIBinding to an export below a path that does not exist yet."""
    return AWAITED_PATH_LABEL, hashlib.sha224(path.encode()).hexdigest()


def is_identity(text: str) -> bool:
    """Whether a text looks like the identity hash of an APIExport: SHA-256 in lower-case hexadecimal."""
    return len(text) == _IDENTITY_DIGITS and not set(text) - _HEXADECIMAL


@lru_cache(maxsize=1024)
def export_hash(cluster: str, name: str) -> str:
    """Hash of an APIExport by its logical cluster (never its path) and name; value of EXPORT_LABEL."""
    return b62(sha224(f"{cluster}:{name}"))


@lru_cache(maxsize=1024)
def claim_value(group: str, resource: str, identity: str = "") -> str:
    """The value of a claim's label, the same for every export that makes this claim.

    `identity` is the claim's identity hash, empty for built-in resources. The value covers the claim without verbs and
    selector, in the field order of kcp's JSON.
    """
    claim: dict[str, str | None] = {"group": group} if group else {}
    claim |= {"resource": resource, "verbs": None}
    if identity:
        claim["identityHash"] = identity
    return b62(sha224(json.dumps(claim, separators=(",", ":"))))


def reflexive_claim_label(cluster: str, export: str) -> tuple[str, str]:
    """Label key and value on an APIBinding to this export which has accepted no claim on APIBindings."""
    return CLAIM_LABEL_PREFIX + export_hash(cluster, export), REFLEXIVE_VALUE


#: On APIBindings that an export's provider sees because they bind it.
REFLEXIVE_VALUE = b62(bytes([*range(10), *range(10), *range(8)]))


def default_binding_name(cluster: str, export_path: str, export: str) -> str:
    """Name of the APIBinding that a WorkspaceType's default binding makes in `cluster`."""
    digest = b62(sha224(f"{cluster}|{export_path}|{export}"))
    return f"{export[:_BINDING_EXPORT_SIZE]}-{digest[:_BINDING_HASH_SIZE].lower()}"


def new_identity_key() -> str:
    """A fresh identity secret (256 bits, as 64 hex digits) for data key `key` of an export's Secret."""
    return secrets.token_hex(_TOKEN_SIZE)


def identity_hash(key: bytes) -> str:
    """Identity of an APIExport: lower-case hex SHA-256 of the bytes of its Secret's data key `key`."""
    return hashlib.sha256(key).hexdigest()
