"""Reserved names, groups and annotations, and the canonical path annotation.

Implements kcp's plug-ins reservedcrdgroups, reservedcrdannotations, reservednames and pathannotation.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import annotations_of, decode
from atoll.machinery.meta.status import FieldError, invalid
from atoll.machinery.meta.types import LOGICAL_CLUSTERS

RESERVED_GROUP = "apis.kcp.io"
_CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")
_PATHED = frozenset(
    {
        ("apis.kcp.io", "apiexports"),
        ("apis.kcp.io", "apibindings"),
        ("tenancy.kcp.io", "workspacetypes"),
        ("cache.kcp.io", "clustercachedresources"),
    }
)


class ReservedDefinitions(Plugin):
    """Rejects CRDs with the group apis.kcp.io or annotations of that domain."""

    resources = (_CRDS,)

    def validate(self, review: Review) -> None:
        if review.obj is None or review.call.user.is_master:
            return
        name, group = review.obj["metadata"]["name"], review.obj["spec"].get("group", "")
        if group == RESERVED_GROUP or group.endswith("." + RESERVED_GROUP):
            text = f'spec.group: Invalid value: "{group}": "{group}" is reserved'
            raise errors.forbidden(review.call.kind, name, text)
        before = annotations_of(review.old) if review.old else {}
        for key, value in annotations_of(review.obj).items():
            domain = key.partition("/")[0]
            if (domain == RESERVED_GROUP or domain.endswith("." + RESERVED_GROUP)) and before.get(key) != value:
                raise errors.forbidden(review.call.kind, name, f'metadata.annotations[{key}]: "{key}" is reserved')


class PathAnnotation(Plugin):
    """Sets the canonical path of the cluster on four kinds and on every object that has the annotation."""

    def mutate(self, review: Review) -> None:
        own = review.group_resource == ("core.kcp.io", "logicalclusters")
        if review.obj is None or review.operation == "delete" or own:
            return
        annotations = review.obj["metadata"].get("annotations") or {}
        if review.group_resource not in _PATHED and wellknown.PATH not in annotations:
            return
        path = canonical_path(review)
        if path and annotations.get(wellknown.PATH) != path:
            review.obj["metadata"]["annotations"] = {**annotations, wellknown.PATH: path}


def canonical_path(review: Review) -> str:
    """Return the path annotation of the cluster's LogicalCluster; empty if absent."""
    record = review.view.get(ObjectKey(LOGICAL_CLUSTERS, review.call.cluster, "", "cluster"))
    if record is None:
        return ""
    return str(annotations_of(decode(record.value)).get(wellknown.PATH, ""))


class ReservedNames(Plugin):
    """Rejects WorkspaceTypes named `any` or `system`, and `root` outside the root cluster."""

    resources = (("tenancy.kcp.io", "workspacetypes"),)

    def validate(self, review: Review) -> None:
        if review.operation != "create":
            return
        assert review.obj is not None
        name = review.obj["metadata"]["name"]
        if name in {"any", "system"}:
            error = FieldError("FieldValueInvalid", "metadata.name", f'Invalid value: "{name}": the name is reserved')
            raise invalid(review.call.kind.group_kind, name, [error])
        if name == "root" and review.call.cluster != "root":
            raise errors.forbidden(review.call.kind, name, "root workspace type can only be created in root cluster")
