"""Expected labels of permission claims, computed without the product's own code, and waits for them."""

from __future__ import annotations

import hashlib
import string

from harness.clients.api import Api, Object
from harness.clients.exports import BINDINGS, is_true, wait

CLAIMED = "claimed.internal.apis.kcp.io/"
_DIGITS = string.digits + string.ascii_lowercase + string.ascii_uppercase
Pair = tuple[str, str]


def base62(data: bytes) -> str:
    """Big-endian, without padding."""
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 62)
        text = _DIGITS[digit] + text
    return text or "0"


def _hash(text: str) -> str:
    return base62(hashlib.sha224(text.encode()).digest())


def claim_pair(cluster: str, export: str, group: str, resource: str, identity: str = "") -> Pair:
    """Label key and value of an export's claim."""
    parts = [f'"group":"{group}"'] if group else []
    parts += [f'"resource":"{resource}"', '"verbs":null']
    parts += [f'"identityHash":"{identity}"'] if identity else []
    return CLAIMED + _hash(f"{cluster}:{export}"), _hash("{" + ",".join(parts) + "}")


def reflexive_pair(cluster: str, export: str) -> Pair:
    """Label key and value by which an export's owner selects bindings to it."""
    return CLAIMED + _hash(f"{cluster}:{export}"), base62(bytes([*range(10), *range(10), *range(8)]))


def claimed(obj: Object) -> dict[str, str]:
    """The labels of claims on an object."""
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    return {key: value for key, value in labels.items() if key.startswith(CLAIMED)}


def carries(api: Api, path: str, *pairs: Pair) -> None:
    """Wait until an object carries exactly these labels of claims."""
    wait(api, path, lambda obj: claimed(obj) == dict(pairs))


def applied(api: Api, name: str) -> Object:
    """Return the binding once exactly its accepted claims are applied, with their present selectors."""

    def right(obj: Object) -> bool:
        wanted = {_key(each): each["selector"] for each in _claims(obj) if each["state"] == "Accepted"}
        done = {_key(each): each["selector"] for each in obj.get("status", {}).get("appliedPermissionClaims", [])}
        return is_true(obj, "PermissionClaimsApplied") and done == wanted

    return wait(api, f"{BINDINGS}/{name}", right)


def _claims(binding: Object) -> list[Object]:
    claims: list[Object] = binding["spec"].get("permissionClaims", [])
    return claims


def _key(each: Object) -> tuple[str, str, str]:
    return each.get("group", ""), each["resource"], each.get("identityHash", "")
