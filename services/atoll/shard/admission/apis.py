"""APIBindings and APIResourceSchemas on their way in.

A binding's export must be one its author may bind; its label is the system's; a schema never changes. Stands for
kcp's plug-ins apis.kcp.io/APIBinding (reference checks), APIBindingFinalizer and APIResourceSchema.
"""

from __future__ import annotations

from atoll.controllers.facts import Facts
from atoll.machinery.apiserver import errors
from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.kcp import shapes
from atoll.machinery.kinds.rules.definition import Checks
from atoll.machinery.meta import hashes
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.crd import validate_resource_schema
from atoll.shard.admission.workspaces import May, may_bind

GROUP = "apis.kcp.io"
EXPORT_LABEL = "internal.apis.kcp.io/export"


class ApiBindings:
    """Guards APIBindings."""

    def __init__(self, facts: Facts, may: May) -> None:
        self._facts, self._may = facts, may

    def mutate(self, review: Review) -> None:
        if review.group_resource != (GROUP, "apibindings") or review.obj is None or review.call.whole:
            return
        metadata = review.obj["metadata"]
        if review.operation == "create":
            metadata["finalizers"] = list(
                dict.fromkeys([*(metadata.get("finalizers") or []), shapes.BINDING_FINALIZER])
            )
        cluster, name = self._export(review, review.obj)
        if cluster:
            label = hashes.export_hash(cluster, name)
            metadata["labels"] = {**(metadata.get("labels") or {}), EXPORT_LABEL: label}

    def _export(self, review: Review, obj: Object) -> tuple[str, str]:
        reference = ((obj.get("spec") or {}).get("reference") or {}).get("export") or {}
        path = reference.get("path") or review.call.cluster
        return self._facts.cluster_of(review.view, path) or "", str(reference.get("name") or "")

    def validate(self, review: Review) -> None:
        if review.group_resource != (GROUP, "apibindings") or review.obj is None or review.call.user.is_master:
            return
        reference = review.obj["spec"]["reference"]
        if review.old is not None and review.old["spec"].get("reference") == reference:
            return
        name = review.obj["metadata"]["name"]
        if review.old is not None:
            raise errors.forbidden(review.call.kind, name, "APIExport reference must not be changed")
        export = reference.get("export") or {}
        path = export.get("path") or review.call.cluster
        if not may_bind(self._facts, self._may, review, path, str(export.get("name") or "")):
            text = f"unable to create APIBinding: no permission to bind to export {path}:{export.get('name')}"
            raise errors.forbidden(review.call.kind, name, text)


class ApiResourceSchemas:
    """Guards APIResourceSchemas: sound when they come, unchanged afterwards."""

    def mutate(self, review: Review) -> None:
        """Nothing to change."""

    def validate(self, review: Review) -> None:
        if review.group_resource != (GROUP, "apiresourceschemas") or review.obj is None:
            return
        name = review.obj["metadata"]["name"]
        if review.old is not None:
            if review.obj["spec"] != review.old["spec"]:
                raise errors.forbidden(review.call.kind, name, "spec: Invalid value: is immutable")
            return
        found = validate_resource_schema(review.obj, rules=Checks())
        if found:
            raise errors.forbidden(review.call.kind, name, ", ".join(str(error) for error in found))
