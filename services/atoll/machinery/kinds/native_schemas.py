"""Published schemas of the built-in kinds, compiled on first use.

The OpenAPI document, kubectl explain and server-side apply read the components; every built-in Kind has a
`NativeSchema`. Components are read once from `schemas/native/openapi`; a schema is compiled at the first write of its
kind, so that start-up and idle memory are independent of unused kinds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from atoll.machinery.meta.cached_property import cached_property
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.process.resources import schema_path

if TYPE_CHECKING:
    from atoll.machinery.schema.structural.compiler import Referenced
    from atoll.machinery.schema.structural.structural_schema import StructuralSchema

#: What all schemas of built-in kinds share.
_REFERENCED: Referenced = {}
#: Prefix of references between components.
REF_PREFIX = "#/components/schemas/"
#: Keywords whose keys are field names, not keywords.
_NAMES = frozenset({"properties", "patternProperties", "definitions", "dependencies"})
_CONTAINERS = frozenset((dict, list))


@cache
def definitions() -> Mapping[str, Object]:
    """Return all components by name, such as `io.k8s.api.core.v1.ConfigMap`. Shared and immutable."""
    found: dict[str, Object] = {}
    decoder = msgspec.json.Decoder(dict[str, Object])
    for path in sorted(schema_path("native", "openapi").glob("*.json")):
        found.update(decoder.decode(path.read_bytes()))
    return MappingProxyType(found)


def component(name: str) -> Object:
    """Return one component. Raises KeyError for an unknown name."""
    return definitions()[name]


class NativeSchema:
    """The schema of a built-in kind (see `kind.Schema`), compiled on first use.

    Nulls are dropped first: Go clients write them for empty lists and zero times, and Kubernetes treats a null in any
    field of its own kinds as absent. `open_values` names fields with arbitrary JSON values, which keep their nulls;
    `components` are those of built-in kinds if absent.
    """

    def __init__(
        self, name: str, open_values: Collection[str] = (), components: Mapping[str, Object] | None = None
    ) -> None:
        self.definitions: Mapping[str, Object] = definitions() if components is None else components
        self.source: Object = self.definitions[name]
        self.size_bytes = 0
        self._open_values = frozenset(open_values)

    @cached_property
    def _compiled(self) -> StructuralSchema:
        return self._compile()

    def _compile(self) -> StructuralSchema:
        from atoll.machinery.schema.structural.structural_schema import compile_schema

        return compile_schema(self.source, self.definitions, _REFERENCED)

    def is_plain(self, obj: Object) -> bool:
        """Whether an object is known to be valid and to need defaults at most."""
        return self._compiled.is_plain(obj)

    def unknown_fields(self, obj: Object) -> list[str]:
        """Return paths that the schema does not declare, in document order."""
        return self._compiled.unknown_fields(obj)

    def normalize(self, obj: Object) -> None:
        """Drop nulls and undeclared fields, set defaults."""
        if self._compiled.complete(obj):
            return
        drop_nulls(obj, self._open_values)
        self._compiled.normalize(obj)

    def prune(self, obj: Object) -> None:
        """Drop nulls and undeclared fields."""
        drop_nulls(obj, self._open_values)
        self._compiled.prune(obj)

    def default(self, obj: Object) -> None:
        """Set the defaults of the schema."""
        self._compiled.default(obj)

    def default_plain(self, obj: Object) -> None:
        """Set the defaults of an object that `is_plain`."""
        self._compiled.default_plain(obj)

    def validate(self, obj: Object, old: Object | None = None) -> list[FieldError]:
        """Return all violations; `old` is ignored, because Kubernetes does not ratchet the types of its own kinds.

        List keys and sets only declare how to merge. Uniqueness is checked by the kind: Kubernetes accepts a
        ServiceAccount that names a secret twice.
        """
        errors = self._compiled.validate(obj)
        return [error for error in errors if error.type != "FieldValueDuplicate"] if errors else errors


def drop_nulls(obj: Object, open_values: Collection[str] = ()) -> None:
    """Remove keys with a null value at every depth, lists included, but not inside `open_values`."""
    todo: list[tuple[Any, bool]] = [(obj, False)]
    while todo:
        node, holds_names = todo.pop()
        if type(node) is list:
            for item in node:
                if type(item) in _CONTAINERS:
                    todo.append((item, False))
            continue
        if None in node.values():
            for name in [name for name, value in node.items() if value is None]:
                del node[name]
        for name, value in node.items():
            if type(value) in _CONTAINERS and (holds_names or name not in open_values):
                todo.append((value, name in _NAMES))
