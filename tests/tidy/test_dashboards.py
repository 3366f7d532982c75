"""Dashboards, alerts and runbooks: the chart has what the script writes, and each alert has its runbook."""

from __future__ import annotations

import importlib.util
import re

import yaml

from tidy.sources import ROOT

SCRIPT = ROOT / "infra" / "dashboards" / "write.py"
_SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_MOST_LINES = 16


def test_the_chart_has_what_the_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("write_dashboards", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    paths = [path for path in script.WRITTEN.rglob("*") if path.is_file()]
    found = {str(path.relative_to(script.WRITTEN)): path.read_text() for path in paths}
    assert found == script.files(), f"python {SCRIPT}"


def test_each_alert_has_a_short_runbook_and_each_runbook_an_alert() -> None:
    groups = yaml.safe_load((SCRIPT.parent / "alerts.yaml").read_text())["groups"]
    alerts = [rule["alert"] for group in groups for rule in group["rules"]]
    sections = dict(_SECTION.findall((ROOT / "docs" / "runbooks.md").read_text()))
    assert list(sections) == alerts
    for name, text in sections.items():
        assert len(text.strip().splitlines()) <= _MOST_LINES, name
        assert "```sh\n" in text, name
