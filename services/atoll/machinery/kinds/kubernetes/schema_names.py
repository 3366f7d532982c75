"""Names of the shipped APIResourceSchemas, known without making them: the prefix of each by `<plural>.<group>`.

The export of root lists them, and the catalogue tells by them which bound schemas are shipped ones. A contract test
makes the schemas and compares. Invariant: a prefix holds the hash of the schema's content.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import msgspec

from atoll.machinery.process.resources import schema_path


@cache
def schema_names() -> Mapping[str, str]:
    """Return the names of all APIResourceSchemas by `<plural>.<group>`, `core` for the empty group."""
    data = schema_path("native", "kubernetes", "schema_names.json").read_bytes()
    prefixes = msgspec.json.decode(data, type=dict[str, str])
    return MappingProxyType({row: f"{prefix}.{row}" for row, prefix in prefixes.items()})


def row_of_schema(name: str) -> str | None:
    """Return the `<plural>.<group>` of an APIResourceSchema by its name; None if it is not one of the shipped ones."""
    row = name.partition(".")[2]
    return row if schema_names().get(row) == name else None
