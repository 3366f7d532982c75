"""The service account of a new Pod: it exists, gives its pull secrets, and its token is mounted into every container.

Implements kube-apiserver's plug-in ServiceAccount with its texts. The account `default` counts as present: the system
makes it in every namespace, which a new Pod may outrun. Secrets are checked only where the account's annotation asks.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kinds.checks import ensure, items, mapping, objects, text
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.status import Forbidden
from atoll.machinery.meta.types import SERVICE_ACCOUNTS
from atoll.shard.admission.kubernetes.served import is_kubernetes_own, is_new, named
from atoll.shard.admission.kubernetes.token_volume import mount_token

DEFAULT = "default"
_MIRROR = "kubernetes.io/config.mirror"
_ENFORCED = "kubernetes.io/enforce-mountable-secrets"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_CONTAINERS = (("initContainers", "init container"), ("containers", "container"))
_EPHEMERAL = (("ephemeralContainers", "ephemeral container"),)
#: Sources of volumes that name a secret, with the path of the name.
_SECRET_SOURCES = {
    "azureFile": ("secretName",),
    "secret": ("secretName",),
    "csi": ("nodePublishSecretRef", "name"),
    **dict.fromkeys(("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"), ("secretRef", "name")),
}


class PodAccounts(Plugin):
    """Sets and checks the service account of new Pods, and the secrets of their ephemeral containers."""

    resources = (("", "pods"),)

    def mutate(self, review: Review) -> None:
        if not is_new(review):
            return
        pod = review.result
        spec = ensure(pod, "spec")
        if _MIRROR in annotations_of(pod):
            _check_mirror(review, spec)
            return
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = DEFAULT
        account = _account(review, spec["serviceAccountName"])
        if _mounts_token(spec, account):
            mount_token(spec, pod["metadata"]["uid"])
        secrets = items(account, "imagePullSecrets")
        if secrets and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": text(each, "name")} for each in secrets]

    def validate(self, review: Review) -> None:
        if review.obj is None or not is_kubernetes_own(review.call.kind):
            return
        spec = mapping(review.obj, "spec")
        if is_new(review):
            if _MIRROR in annotations_of(review.obj):
                _check_mirror(review, spec)
            else:
                _check(review, spec, _CONTAINERS)
        elif review.subresource == "ephemeralcontainers":
            _check(review, spec, _EPHEMERAL)


def _refusal(review: Review, said: str) -> Forbidden:
    return errors.forbidden(review.call.kind, review.name, said)


def _account(review: Review, name: str) -> Object:
    """Return the account of a Pod. Raises Forbidden if it does not exist."""
    namespace = review.call.info.namespace
    found = named(review, SERVICE_ACCOUNTS, name, namespace)
    if found is None and name != DEFAULT:
        missing = f'serviceaccount "{name}" not found'
        raise _refusal(review, f"error looking up service account {namespace}/{name}: {missing}")
    return found or {}


def _mounts_token(spec: Object, account: Object) -> bool:
    """The Pod decides, then the account."""
    for said in (spec.get("automountServiceAccountToken"), account.get("automountServiceAccountToken")):
        if said is not None:
            return bool(said)
    return True


def _check(review: Review, spec: Object, fields: tuple[tuple[str, str], ...]) -> None:
    """Raise Forbidden for a Pod without a usable account, or with secrets that the account does not list."""
    name = text(spec, "serviceAccountName")
    if not name:
        namespace = review.call.info.namespace
        raise _refusal(review, f"no service account specified for pod {namespace}/{review.name}")
    account = _account(review, name)
    if account and annotations_of(account).get(_ENFORCED) in _TRUE:
        for said, what in _unlisted(spec, account, fields):
            reason = f"is not allowed because service account {name} does not reference that {what}"
            raise _refusal(review, f"{said} {reason}")


def _unlisted(spec: Object, account: Object, fields: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str]]:
    """Yield texts about secrets that the account does not list, and what they are."""
    listed = {text(each, "name") for _, each in objects(account, "secrets")}
    is_whole = fields is _CONTAINERS
    for _, volume in objects(spec, "volumes") if is_whole else ():
        if isinstance(volume.get("secret"), dict) and text(volume, "secret", "secretName") not in listed:
            yield f'volume with secret.secretName="{text(volume, "secret", "secretName")}"', "secret"
    for field, kind in fields:
        for _, container in objects(spec, field):
            for where, secret in _secrets_of(container):
                if secret not in listed:
                    name = text(container, "name")
                    yield f'{kind} {name} with {where} referencing secret.secretName="{secret}"', "secret"
    pulled = {text(each, "name") for _, each in objects(account, "imagePullSecrets")}
    for index, each in objects(spec, "imagePullSecrets") if is_whole else ():
        if text(each, "name") not in pulled:
            yield f'imagePullSecrets[{index}].name="{text(each, "name")}"', "imagePullSecret"


def _secrets_of(container: Object) -> Iterator[tuple[str, str]]:
    for _, each in objects(container, "env"):
        if isinstance(mapping(each, "valueFrom").get("secretKeyRef"), dict):
            yield f"envVar {text(each, 'name')}", text(each, "valueFrom", "secretKeyRef", "name")
    for _, each in objects(container, "envFrom"):
        if isinstance(each.get("secretRef"), dict):
            yield "envFrom", text(each, "secretRef", "name")


def _check_mirror(review: Review, spec: Object) -> None:
    """Raise Forbidden for a mirror Pod that needs what only the API server could give it."""
    if spec.get("serviceAccountName"):
        raise _refusal(review, "a mirror pod may not reference service accounts")
    if any(_all_secrets(spec)):
        raise _refusal(review, "a mirror pod may not reference secrets")
    for _, volume in objects(spec, "volumes"):
        if any(each.get("serviceAccountToken") is not None for _, each in objects(volume, "projected", "sources")):
            raise _refusal(review, "a mirror pod may not use ServiceAccountToken volume projections")


def _all_secrets(spec: Object) -> Iterator[str]:
    """Yield the names of all secrets that a Pod uses."""
    yield from (text(each, "name") for _, each in objects(spec, "imagePullSecrets"))
    for field, _ in (*_CONTAINERS, *_EPHEMERAL):
        for _, container in objects(spec, field):
            yield from (secret for _, secret in _secrets_of(container))
    for _, volume in objects(spec, "volumes"):
        yield from (text(volume, source, *path) for source, path in _SECRET_SOURCES.items())
        yield from (text(each, "secret", "name") for _, each in objects(volume, "projected", "sources"))
