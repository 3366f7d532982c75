"""Admission of CertificateSigningRequests: permission to approve and to sign, and restricted subjects.

Implements Kubernetes' plug-ins CertificateApproval, CertificateSigning and CertificateSubjectRestriction, and sets the
requestor, which no client may write.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.user import MASTERS
from atoll.machinery.process.certificate_requests import requested_organizations

GROUP, PLURAL = "certificates.k8s.io", "certificatesigningrequests"
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"

May = Callable[[View, Attributes], bool]


class Certificates(Plugin):
    """Admits CertificateSigningRequests."""

    resources = ((GROUP, PLURAL),)

    def __init__(self, may: May) -> None:
        self._may = may

    def mutate(self, review: Review) -> None:
        if review.obj is None:
            return
        if review.operation == "update" and review.subresource in {"approval", "status"}:
            _stamp_conditions(review.obj, review.old or {}, review.call.now)
        if review.operation != "create":
            return
        user, spec = review.call.user, review.obj["spec"]
        # All four fields are the requestor's: what the body says of an absent one goes too.
        for field in ("uid", "extra"):
            spec.pop(field, None)
        spec["username"], spec["groups"] = user.name, list(user.groups)
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {name: list(values) for name, values in user.extra.items()}

    def validate(self, review: Review) -> None:
        if review.obj is None:
            return
        if review.operation == "create":
            self._restrict_subject(review, review.obj)
        elif review.subresource == "approval":
            self._require(review, "approve", "user not permitted to approve requests with signerName")
        elif review.subresource == "status" and _issued(review.obj) != _issued(review.old or {}):
            self._require(review, "sign", "user not permitted to sign requests with signerName")

    def _restrict_subject(self, review: Review, obj: Object) -> None:
        spec = obj["spec"]
        if spec.get("signerName") != _CLIENT_SIGNER:
            return
        try:
            organizations = requested_organizations(base64.b64decode(spec.get("request") or ""))
        except (ValueError, binascii.Error):
            # The kind validates the form, with its own message.
            return
        if MASTERS in organizations:
            text = f"use of {_CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
            raise errors.forbidden(review.call.kind, obj["metadata"]["name"], text)

    def _require(self, review: Review, verb: str, refusal: str) -> None:
        assert review.old is not None
        signer = review.old["spec"].get("signerName", "")
        for name in (signer, signer.partition("/")[0] + "/*"):
            asked = Attributes(
                user=review.call.user,
                verb=verb,
                cluster=review.call.cluster,
                group=GROUP,
                version="*",
                resource="signers",
                name=name,
            )
            if self._may(review.view, asked):
                return
        raise errors.forbidden(review.call.kind, review.old["metadata"]["name"], f'{refusal} "{signer}"')


def _conditions(obj: Object) -> list[Object]:
    """Return the conditions that are objects; the kind rejects others."""
    found = status_of(obj).get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _stamp_conditions(obj: Object, old: Object, now: str) -> None:
    """Set missing times of conditions; an unchanged condition keeps its transition time."""
    since = {
        (each.get("type"), each.get("status")): each["lastTransitionTime"]
        for each in _conditions(old)
        if each.get("lastTransitionTime")
    }
    for condition in _conditions(obj):
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = since.get((condition.get("type"), condition.get("status")), now)


def _issued(obj: Object) -> object:
    return status_of(obj).get("certificate")
