"""The default StorageClass of new claims and the default IngressClass of new Ingresses; claims that grow.

Implements kube-apiserver's plug-ins DefaultStorageClass, DefaultIngressClass and PersistentVolumeClaimResize, with
their texts. The newest default class wins, then the first by name.
"""

from __future__ import annotations

from decimal import Decimal

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kinds.checks import mapping, text
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.quantity import parse
from atoll.shard.admission.kubernetes.served import every, is_new, is_written, named, neighbour

CLAIMS, INGRESSES = ("", "persistentvolumeclaims"), ("networking.k8s.io", "ingresses")
STORAGE_CLASSES, INGRESS_CLASSES = ("storage.k8s.io", "storageclasses"), ("networking.k8s.io", "ingressclasses")
_DEFAULT_STORAGE = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_DEFAULT_INGRESS = ("ingressclass.kubernetes.io/is-default-class",)
_OLD_STORAGE, _OLD_INGRESS = "volume.beta.kubernetes.io/storage-class", "kubernetes.io/ingress.class"


class DefaultClasses(Plugin):
    """Sets the class of a new claim or Ingress that names none; `storageClassName: ""` names none on purpose."""

    resources = (CLAIMS, INGRESSES)

    def mutate(self, review: Review) -> None:
        if not is_new(review) or not isinstance(review.result.get("spec"), dict):
            return
        if review.group_resource == CLAIMS:
            _set_default(review, "storageClassName", _OLD_STORAGE, STORAGE_CLASSES, _DEFAULT_STORAGE)
        else:
            _set_default(review, "ingressClassName", _OLD_INGRESS, INGRESS_CLASSES, _DEFAULT_INGRESS)


def _set_default(review: Review, field: str, old: str, classes: tuple[str, str], marks: tuple[str, ...]) -> None:
    spec = review.result["spec"]
    if spec.get(field) is not None or old in annotations_of(review.result):
        return
    found = every(review, neighbour(review, *classes))
    marked = [each for each in found if any(annotations_of(each).get(mark) == "true" for mark in marks)]
    newest = max((each["metadata"].get("creationTimestamp", "") for each in marked), default="")
    first = next((each for each in marked if each["metadata"].get("creationTimestamp", "") == newest), None)
    if first is not None:
        spec[field] = first["metadata"]["name"]


class GrowingClaims(Plugin):
    """Lets a claim grow if it is bound and its StorageClass allows it."""

    resources = (CLAIMS,)

    def validate(self, review: Review) -> None:
        if not is_written(review) or review.old is None or _size(review.result) <= _size(review.old):
            return
        if text(review.old, "status", "phase") != "Bound":
            self._refuse(review, "Only bound persistent volume claims can be expanded")
        name, before = _class_of(review.result), _class_of(review.old)
        found = named(review, neighbour(review, *STORAGE_CLASSES), name) if name and name == before else None
        if not (found or {}).get("allowVolumeExpansion"):
            said = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must"
            self._refuse(review, said + " support resize")

    def _refuse(self, review: Review, said: str) -> None:
        raise errors.forbidden(review.call.kind, review.name, said)


def _size(claim: Object) -> Decimal:
    return parse(mapping(claim, "spec", "resources", "requests").get("storage", 0))


def _class_of(claim: Object) -> str:
    return annotations_of(claim).get(_OLD_STORAGE) or text(claim, "spec", "storageClassName")
