"""Results of CEL transformations as JSON, and the type check of their input."""

from __future__ import annotations

import base64
import math
from typing import Any

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.std.times import duration_text, timestamp_text
from atoll.machinery.cel.values import Duration, Optional_, Timestamp

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def fits(schema: Any, value: Any) -> bool:
    """Report whether a value has the declared type of its schema, if one is declared."""
    wanted = schema.get("type")
    classes = _TYPES.get(wanted) if isinstance(wanted, str) else None
    if classes is None:
        return True
    return isinstance(value, classes) and (wanted == "boolean") == isinstance(value, bool)


def as_json(value: Any) -> Any:
    """Return the JSON of a CEL value. Raises EvaluationError for a value without a JSON form."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: as_json(item) for key, item in value.items()}
    return _special(value)


def _special(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return timestamp_text(value)
    if isinstance(value, Duration):
        return duration_text(value)
    if isinstance(value, Optional_):
        return as_json(value.value) if value.has_value else None
    raise EvaluationError(f"a transformation cannot result in a {type(value).__name__.lower()}")
