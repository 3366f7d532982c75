"""Approval of definitions in groups of Kubernetes: the annotation `api-approved.kubernetes.io`.

`crd` and `apiresourceschema` validate it; the controller of CustomResourceDefinitions sets its condition from it.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.definitions.accessors import mapping
from atoll.machinery.schema.fielderrors import invalid, quote, required

_APPROVAL_HELP = "see https://github.com/kubernetes/enhancements/pull/1111"


def is_protected(group: str) -> bool:
    """Whether a group is reserved for Kubernetes."""
    return f".{group}".endswith((".k8s.io", ".kubernetes.io"))


class Approval(NamedTuple):
    """The approval of a definition in a group of Kubernetes.

    `state` is `missing`, `unapproved` (declared so), `approved` (by a URL) or `invalid`; `message` is that of the
    condition KubernetesAPIApprovalPolicyConformant.
    """

    state: str
    message: str


def approval(obj: Object) -> Approval:
    """Return the approval that the annotation of a definition declares."""
    value = mapping(obj, "metadata", "annotations").get(wellknown.API_APPROVED)
    annotation = f"annotation {quote(wellknown.API_APPROVED)}"
    if not value or not isinstance(value, str):
        return Approval("missing", f"protected groups must have approval {annotation}, {_APPROVAL_HELP}")
    if value.startswith("unapproved"):
        return Approval("unapproved", f"not approved: {quote(value)}")
    try:
        url = urlsplit(value)
    except ValueError:
        url = urlsplit("")
    if url.scheme and url.netloc:
        return Approval("approved", f"approved in {value}")
    text = f'protected groups must have approval {annotation} with either a URL or a reason starting with "unapproved"'
    return Approval("invalid", f"{text}, {_APPROVAL_HELP}")


def approval_errors(obj: Object, old: Object | None) -> list[FieldError]:
    """Validate the approval of a definition in a protected group; on update only if its state changed."""
    group = mapping(obj, "spec").get("group")
    if not isinstance(group, str) or not is_protected(group):
        return []
    state, message = approval(obj)
    if state in ("approved", "unapproved") or (old is not None and approval(old).state == state):
        return []
    field = f"metadata.annotations[{wellknown.API_APPROVED}]"
    if state == "missing":
        return [required(field, message)]
    return [invalid(field, mapping(obj, "metadata", "annotations").get(wellknown.API_APPROVED), message)]
