"""Write the table of values in the chart's README: `python infra/helm/write_readme.py`.

Descriptions are those of values.schema.json, defaults those of values.yaml. A test compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent / "atoll"
BEGIN, END = "<!-- values -->\n", "<!-- end of values -->\n"


def written(readme: str) -> str:
    """Return the README with the table as it should be."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = "".join(f"| `{name}` | {text} | {default} |\n" for name, text, default in _rows(schema, values, ""))
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}| value | what it is | default |\n|---|---|---|\n{rows}{END}{rest.split(END)[1]}"


def _rows(schema: dict[str, Any], values: Any, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Name, description and default of each value; those of a list's items have none."""
    for name, each in schema["properties"].items():
        default = values.get(name) if isinstance(values, dict) else None
        path = f"{prefix}{name}"
        if each.get("properties") and name != "resources":
            yield from _rows(each, default, f"{path}.")
        elif "description" in each:
            shown = "" if default is None else f"`{json.dumps(default)}`"
            yield path, each["description"].replace("|", "\\|"), shown


if __name__ == "__main__":
    path = CHART / "README.md"
    path.write_text(written(path.read_text()))
