"""`format.<name>()`, `format.named(name)` and `validate(text)`: Kubernetes' named string formats.

Part of `base`. `validate` returns none for a valid text and otherwise the list of problems, in the words of Kubernetes'
field errors.
"""

from __future__ import annotations

from typing import Final

from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.libraries.kubernetes_value import KubernetesValue
from atoll.machinery.cel.libraries.values import formats
from atoll.machinery.cel.types import STRING, ListType, ObjectType, OptionalType
from atoll.machinery.cel.values import NONE, Optional_

TYPE: Final = ObjectType("kubernetes.NamedFormat", {})


class NamedFormat(KubernetesValue):
    """A format as a CEL value."""

    __slots__ = ("form",)
    cel_type = TYPE

    def __init__(self, form: formats.NamedFormat) -> None:
        self.form = form

    def equals(self, other: NamedFormat) -> bool:
        return self.form.name == other.form.name

    def __hash__(self) -> int:
        return hash(self.form.name)

    @property
    def pattern_size(self) -> int:
        """The size of the pattern that a validation is charged for."""
        return self.form.pattern_size


_BY_NAME: Final = {name: NamedFormat(form) for name, form in formats.FORMATS.items()}


def _named(name: str) -> Optional_:
    found = _BY_NAME.get(name)
    return NONE if found is None else Optional_(found)


def _validate(value: NamedFormat, text: str) -> Optional_:
    problems = value.form.check(text)
    return Optional_(problems) if problems else NONE


def _constant(name: str, value: NamedFormat) -> Function:
    def call() -> NamedFormat:
        return value

    return Function(f"format.{name}", (Overload(f"format.{name}", (), TYPE, call),))


LIBRARY: Final = Library(
    "kubernetes.format",
    (
        Function("format.named", (Overload("format-named", (STRING,), OptionalType(TYPE), _named),)),
        Function(
            "validate",
            (Overload("format-validate", (TYPE, STRING), OptionalType(ListType(STRING)), _validate, member=True),),
        ),
        *(_constant(name, value) for name, value in _BY_NAME.items()),
    ),
)
