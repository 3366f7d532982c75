"""Admission of APIResourceSchemas: validated on create, immutable afterwards.

Implements kcp's plug-in apis.kcp.io/APIResourceSchema.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kinds.kubernetes.schema_names import row_of_schema
from atoll.machinery.kinds.rules.definition import Checks
from atoll.machinery.schema.definitions.apiresourceschema import validate_resource_schema

_OWN = ("apis.kcp.io", "apiresourceschemas")


class ApiResourceSchemas(Plugin):
    """Validates APIResourceSchemas. The checks of their kind compile the CEL rules; `Checks()` does not repeat that."""

    resources = (_OWN,)

    def validate(self, review: Review) -> None:
        if review.obj is None:
            return
        name = review.obj["metadata"]["name"]
        if review.old is not None:
            if review.obj["spec"] != review.old["spec"]:
                raise errors.forbidden(review.call.kind, name, "spec: Invalid value: is immutable")
            return
        if review.call.whole and row_of_schema(name) is not None:
            # The system's own, which tests validate; it takes seconds for all of them.
            return
        found = validate_resource_schema(review.obj, rules=Checks())
        if found:
            raise errors.forbidden(review.call.kind, name, ", ".join(str(error) for error in found))
