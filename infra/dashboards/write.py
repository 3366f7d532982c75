"""Write the dashboards and rules of the chart: `python infra/dashboards/write.py`.

`dashboards.yaml` has a title, a unit and expressions for each panel; this adds what Grafana wants beside. A test
compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
WRITTEN = HERE.parent / "helm" / "atoll" / "monitoring"
_TITLE = re.compile(r"(.*?)(?: \[(\w+)\])?")
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_COLUMNS, _WIDTH, _HEIGHT = 2, 12, 8


def files() -> dict[str, str]:
    """What is written, by the path below `WRITTEN`."""
    described = yaml.safe_load((HERE / "dashboards.yaml").read_text())
    found = {f"dashboards/{name}.json": _text(dashboard(name, panels)) for name, panels in described.items()}
    return {**found, "alerts.yaml": (HERE / "alerts.yaml").read_text()}


def dashboard(name: str, panels: dict[str, Any]) -> dict[str, Any]:
    """A dashboard as Grafana imports it. Its data source, and instances where panels select them, are chosen in it."""
    variables = [{"name": "source", "type": "datasource", "query": "prometheus"}]
    if "$instance" in json.dumps(panels):
        query = "label_values(atoll_store_commits_total, instance)"
        options = {"includeAll": True, "multi": True, "refresh": 2}
        variables.append({"name": "instance", "type": "query", "datasource": _SOURCE, "query": query, **options})
    return {
        "uid": f"atoll-{name}",
        "title": f"Atoll: {name.replace('-', ' ')}",
        "tags": ["atoll"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables},
        "panels": [_panel(number, title, found) for number, (title, found) in enumerate(panels.items())],
    }


def _panel(number: int, text: str, found: str | dict[str, str]) -> dict[str, Any]:
    matched = _TITLE.fullmatch(text)
    assert matched is not None
    title, unit = matched.groups()
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit or "short", "min": 0}, "overrides": []},
        "targets": list(_targets(found)),
    }


def _targets(found: str | dict[str, str]) -> Iterator[dict[str, Any]]:
    by_legend = found if isinstance(found, dict) else {"__auto": found}
    for number, (legend, expression) in enumerate(by_legend.items()):
        yield {"refId": chr(ord("A") + number), "expr": expression, "legendFormat": legend}


def _text(found: dict[str, Any]) -> str:
    """JSON with a line for each panel."""
    panels = ",\n".join(json.dumps(each) for each in found["panels"])
    return json.dumps({**found, "panels": []}).replace('"panels": []', f'"panels": [\n{panels}\n]') + "\n"


if __name__ == "__main__":
    for name, text in files().items():
        path = WRITTEN / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
