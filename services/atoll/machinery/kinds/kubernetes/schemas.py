"""The schema of one of Kubernetes' kinds: that of a built-in kind, with the defaults that depend on other fields.

It requires nothing, so that the checks of the kind alone decide what may be absent (see `zero_values`).
`served_kinds` gives one to each Kind. Like every `NativeSchema` it is compiled at the first write.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from atoll.machinery.kinds.kubernetes.conditional_defaults import set_conditional_defaults
from atoll.machinery.kinds.kubernetes.tables import components
from atoll.machinery.kinds.kubernetes.zero_values import GoComponents, go_component
from atoll.machinery.kinds.native_schemas import NativeSchema
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.time_slicing import require_slices

if TYPE_CHECKING:
    from atoll.machinery.schema.structural.compiler import Referenced
    from atoll.machinery.schema.structural.structural_schema import StructuralSchema

#: What all of these schemas share: a Pod's takes 20 ms to compile, that of a Deployment after it one.
_REFERENCED: Referenced = {}


class KubernetesSchema(NativeSchema):
    """The schema of a component, such as `io.k8s.api.apps.v1.Deployment`."""

    def __init__(self, component: str, open_values: Collection[str] = ()) -> None:
        super().__init__(component, open_values, components())
        self._component = component

    def _compile(self) -> StructuralSchema:
        from atoll.machinery.schema.structural.structural_schema import compile_schema

        # The first with a Pod takes 20 ms, once in a process.
        require_slices()
        return compile_schema(go_component(self._component), GoComponents(), _REFERENCED)

    def normalize(self, obj: Object) -> None:
        """Drop nulls and undeclared fields, set defaults."""
        super().normalize(obj)
        set_conditional_defaults(self._component, obj)

    def default_plain(self, obj: Object) -> None:
        """Set the defaults of an object that `is_plain`, then those that depend on other fields."""
        super().default_plain(obj)
        set_conditional_defaults(self._component, obj)

    def default(self, obj: Object) -> None:
        """Set the defaults of the schema, then those that depend on other fields."""
        super().default(obj)
        set_conditional_defaults(self._component, obj)
