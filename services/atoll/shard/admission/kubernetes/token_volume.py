"""The volume with the token of a Pod's service account, and its mounts. Pure; the name follows from the Pod's uid."""

from __future__ import annotations

from atoll.machinery.kinds.checks import objects, text
from atoll.machinery.meta.objects import Object

PREFIX, PATH = "kube-api-access-", "/var/run/secrets/kubernetes.io/serviceaccount"
#: Seconds; a token of an hour that is accepted for longer is told by these seven.
LIFETIME_S = 3607
_ALPHABET, _LENGTH = "bcdfghjklmnpqrstvwxz2456789", 5


def mount_token(spec: Object, uid: str) -> None:
    """Mount the token into each container without a mount at its path, from one volume, which is added if needed."""
    volumes = [text(volume, "name") for _, volume in objects(spec, "volumes")]
    known = next((name for name in volumes if name.startswith(PREFIX)), "")
    name, is_needed = known or PREFIX + _suffix(uid), False
    for field in ("initContainers", "containers"):
        for _, container in objects(spec, field):
            mounts = container.get("volumeMounts") or []
            if all(text(mount, "mountPath") != PATH for mount in mounts):
                container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": PATH}]
                is_needed = True
    if is_needed and not known:
        spec["volumes"] = [*(spec.get("volumes") or []), {"name": name, "projected": _sources()}]


def _suffix(uid: str) -> str:
    drawn, found = int(uid.replace("-", ""), 16), ""
    for _ in range(_LENGTH):
        drawn, index = divmod(drawn, len(_ALPHABET))
        found += _ALPHABET[index]
    return found


def _sources() -> Object:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": LIFETIME_S}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
        ],
    }
