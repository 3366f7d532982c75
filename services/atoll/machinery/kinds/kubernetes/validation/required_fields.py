"""What the published schema requires, for kinds without other checks: no required field is absent or empty.

An empty text is an absent one, because Go cannot distinguish the two (see `zero_values`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atoll.machinery.kinds.kubernetes.tables import components
from atoll.machinery.kinds.kubernetes.validation.checks_of_kind import Entry
from atoll.machinery.kinds.native_schemas import REF_PREFIX
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import required


def required_fields(component: str) -> Entry:
    """Return the checks of a component, such as `io.k8s.api.resource.v1.ResourceSlice`."""

    def validate(obj: Object) -> list[FieldError]:
        return list(_missing({"$ref": REF_PREFIX + component}, obj, ""))

    return validate, lambda obj, old: validate(obj), {"status": lambda obj, old: validate(obj)}


def _missing(source: Object, part: Any, at: str) -> Iterator[FieldError]:
    if reference := source.get("$ref") or next((each["$ref"] for each in source.get("allOf", ())), ""):
        source = components()[reference.removeprefix(REF_PREFIX)]
    if isinstance(part, list):
        for index, item in enumerate(part):
            yield from _missing(source.get("items", {}), item, f"{at}[{index}]")
    elif isinstance(part, dict):
        fields = source.get("properties", {})
        for name in source.get("required", ()):
            if "default" not in fields[name] and part.get(name) in (None, ""):
                yield required(f"{at}.{name}" if at else name)
        others = source.get("additionalProperties")
        for name, value in part.items():
            below = fields.get(name, others)
            if isinstance(value, dict | list) and isinstance(below, dict) and (at or name != "metadata"):
                yield from _missing(below, value, f"{at}.{name}" if at else name)
