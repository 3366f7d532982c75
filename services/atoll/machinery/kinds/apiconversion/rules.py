"""The rules of an APIConversion, compiled against the schemas of their versions.

Admission calls `errors` when an APIConversion is written; `converter` gets the rules between two versions on first use.
Compiled rules are cached here and live as long as the kinds that they convert. Invariant: a rule that does not compile
is never skipped: every use of it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from atoll.machinery.kinds.apiconversion.paths import Path, schema_at, split
from atoll.machinery.kinds.checks import mapping, objects, strings, text
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid

if TYPE_CHECKING:
    from atoll.machinery.cel.program import Program
    from atoll.machinery.kinds.rules.decl_types import DeclType

Pause = Callable[[], None]
#: Limits of the rules between two versions, and of the characters of one transformation.
MAX_RULES, MAX_TEXT = 1000, 16 * 1024
_IDENTITY = ("apiVersion", "kind", "metadata")
_NOT_FOUND = "unable to find structural schema for version"


class Rule(msgspec.Struct, frozen=True):
    """The conversion of one field. Without a program its value is copied."""

    source: Path
    destination: Path
    schema: Object
    #: Whether the schema has objects all the way to the destination, so that other values on the path are replaced.
    makes_room: bool = False
    program: Program | None = None
    declared: DeclType | None = None


class VersionConversion(msgspec.Struct, frozen=True):
    """The rules from one version to another, and the fields without a counterpart."""

    rules: tuple[Rule, ...]
    preserved: tuple[str, ...]


class InvalidRules(Exception):
    """Rules that do not compile; `errors` are the errors of admission."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


class Rules:
    """The `spec` of an APIConversion, with the schemas of the versions by name."""

    def __init__(self, spec: Object, schemas: Mapping[str, Object]) -> None:
        self._schemas = schemas
        self._entries = {(text(each, "from"), text(each, "to")): (index, each) for index, each in _entries_of(spec)}
        self._compiled: dict[tuple[str, str], VersionConversion] = {}

    def has(self, source: str, target: str) -> bool:
        """Report whether there are rules from one version to another."""
        return (source, target) in self._entries

    def preserved(self, source: str, target: str) -> tuple[str, ...]:
        """Return the fields of one version without a counterpart in another, as paths without a leading dot."""
        entry = self._entries.get((source, target))
        return _preserved(entry[1]) if entry is not None else ()

    def conversion(self, source: str, target: str, pause: Pause) -> VersionConversion:
        """Return the compiled rules of an existing pair of versions. Raises InvalidRules."""
        conversion = self._compiled.get((source, target))
        if conversion is None:
            index, entry = self._entries[source, target]
            compiler = _RuleCompiler(self._schemas, pause)
            conversion = compiler.conversion(entry, f"spec.conversions[{index}]")
            if compiler.errors:
                raise InvalidRules(compiler.errors)
            self._compiled[source, target] = conversion
        return conversion

    def errors(self, pause: Pause) -> list[FieldError]:
        """Return the errors of all rules."""
        compiler = _RuleCompiler(self._schemas, pause)
        for index, entry in self._entries.values():
            compiler.conversion(entry, f"spec.conversions[{index}]")
        return compiler.errors


def _entries_of(spec: Object) -> Iterator[tuple[int, Object]]:
    return iter(objects(spec, "conversions"))


def _preserved(entry: Object) -> tuple[str, ...]:
    return tuple(path.removeprefix(".") for path in strings(entry, "preserve"))


class _RuleCompiler:
    """Compiles rules, and collects their errors."""

    def __init__(self, schemas: Mapping[str, Object], pause: Pause) -> None:
        self._schemas, self._pause = schemas, pause
        self.errors: list[FieldError] = []

    def conversion(self, entry: Object, path: str) -> VersionConversion:
        source = self._schemas.get(text(entry, "from"))
        for field in ("from", "to"):
            if text(entry, field) not in self._schemas:
                self.errors.append(invalid(f"{path}.{field}", text(entry, field), _NOT_FOUND))
        rules = objects(entry, "rules")
        if len(rules) > MAX_RULES:
            self.errors.append(invalid(f"{path}.rules", len(rules), f"must have at most {MAX_RULES} items"))
        elif source is not None:
            target = self._schemas.get(text(entry, "to")) or {}
            return VersionConversion(
                tuple(self._rules(rules, (source, target), path)), self._preserved_fields(entry, path)
            )
        return VersionConversion((), ())

    def _preserved_fields(self, entry: Object, path: str) -> tuple[str, ...]:
        for index, field in enumerate(strings(entry, "preserve")):
            self._is_content(field, f"{path}.preserve[{index}]")
        return _preserved(entry)

    def _rules(self, rules: list[tuple[int, Object]], schemas: tuple[Object, Object], path: str) -> Iterator[Rule]:
        for index, entry in rules:
            rule = self._rule(entry, schemas, f"{path}.rules[{index}]")
            if rule is not None:
                yield rule

    def _rule(self, entry: Object, schemas: tuple[Object, Object], path: str) -> Rule | None:
        source, target = schemas
        field, destination = text(entry, "field"), text(entry, "destination")
        if not self._is_content(destination, f"{path}.destination"):
            return None
        try:
            schema = schema_at(source, split(field))
        except LookupError as error:
            self.errors.append(invalid(f"{path}.field", field, str(error)))
            return None
        transformation, room = text(entry, "transformation"), _has_room(target, split(destination))
        if not transformation:
            return Rule(split(field), split(destination), schema, room)
        found = self._program(transformation, schema, f"{path}.transformation")
        return Rule(split(field), split(destination), schema, room, *found) if found is not None else None

    def _is_content(self, field: str, path: str) -> bool:
        """Report whether a field is outside of metadata, apiVersion and kind; record an error otherwise."""
        if split(field)[0] in _IDENTITY or not all(split(field)):
            self.errors.append(forbidden(path, "only fields outside of metadata can be converted"))
            return False
        return True

    def _program(self, source: str, schema: Object, path: str) -> tuple[Program, DeclType | None] | None:
        """Return a compiled transformation; imports the language on first use."""
        from atoll.machinery.cel.errors import CompileError
        from atoll.machinery.kinds.rules.decl_types import below

        if len(source) > MAX_TEXT:
            self.errors.append(invalid(path, len(source), f"must have at most {MAX_TEXT} characters"))
            return None
        declared = below(mapping(schema))
        try:
            return _environment(declared).compile(source, self._pause), declared
        except CompileError as error:
            self.errors.append(invalid(path, source, f"error compiling CEL program: {error}"))
            return None


def _has_room(schema: Object, path: Path) -> bool:
    """Report whether a schema declares objects all the way to a field."""
    try:
        schema_at(schema, path)
    except LookupError:
        return False
    return True


def _environment(declared: DeclType | None) -> Any:
    """Return the environment of a transformation, with the declared type of `self`, or dyn."""
    from atoll.machinery.cel.types import DYN
    from atoll.machinery.kinds.rules.program import base_environment
    from atoll.machinery.kinds.rules.rule import SELF

    return base_environment().extend({SELF: declared.cel_type("selfType") if declared is not None else DYN})
