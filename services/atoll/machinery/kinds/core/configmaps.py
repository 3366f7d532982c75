"""ConfigMaps: named texts and bytes, at most one MiB."""

from __future__ import annotations

from atoll.machinery.kinds.binary import decoded_size, join_lines
from atoll.machinery.kinds.checks import mapping
from atoll.machinery.kinds.core.data import DATA_SIZE, immutability_errors, key_errors, text_size
from atoll.machinery.kinds.kind import Column, Kind
from atoll.machinery.kinds.native import AGE, NAME, age_cell, builtin, name_cell, row
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid, too_long


def _prepare_create(obj: Object) -> None:
    if "binaryData" in obj:
        join_lines(mapping(obj, "binaryData"))


def _prepare_update(obj: Object, old: Object) -> None:
    if "binaryData" in obj:
        join_lines(mapping(obj, "binaryData"))


def _validate(obj: Object) -> list[FieldError]:
    data, binary = mapping(obj, "data"), mapping(obj, "binaryData") if "binaryData" in obj else {}
    errors = [*key_errors(data, "data"), *(key_errors(binary, "binaryData") if binary else ())]
    for key in sorted(data.keys() & binary.keys()) if binary else ():
        errors.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        errors.append(invalid(f"binaryData[{key}]", key, "duplicate of key present in data"))
    if text_size(data) + (decoded_size(binary) if binary else 0) > DATA_SIZE:
        # The limit is on the whole object; Go prints the empty path like this.
        errors.append(too_long("[]", DATA_SIZE))
    return errors


def _validate_update(obj: Object, old: Object) -> list[FieldError]:
    return [*immutability_errors(obj, old, ("data", "binaryData")), *_validate(obj)]


def _count_cell(obj: Object, now_s: float) -> object:
    return len(mapping(obj, "data")) + len(mapping(obj, "binaryData"))


CONFIGMAPS = Kind(
    **builtin("", "ConfigMap", "configmaps"),
    short_names=("cm",),
    unconditional_update=True,
    columns=(NAME, Column("Data", description="How many values it holds."), AGE),
    cells=row(name_cell, _count_cell, age_cell),
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
)
