"""The benchmark report: the meaning of ratios, and the description of every scenario."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path

from loadtest import report, scenarios
from loadtest.report import Row, Section


def test_a_ratio_above_one_keeps_the_budget_whichever_way_is_better() -> None:
    assert Row("latency", 5, "ms", 10).ratio == 2
    assert Row("rate", 5, "/s", 10, more=True).ratio == 0.5


def test_a_row_without_a_budget_has_no_ratio() -> None:
    assert Row("told", 5, "ms").ratio == 0
    assert report.table([Section("s", "q", 1, [Row("told", 5, "ms")])]).splitlines()[1].split() == [
        "told",
        "5",
        "ms",
        "-",
        "-",
        "-",
    ]


def test_a_failed_scenario_stands_in_the_table() -> None:
    assert "s failed" in report.table([Section("s", "q", 1, [], "broke")])


def test_the_json_holds_what_the_table_shows(tmp_path: Path) -> None:
    file = tmp_path / "results" / "a.json"
    report.write(file, [Section("s", "q", 1, [Row("rate", 5, "/s", 10, more=True)])], size="quick")
    document = json.loads(file.read_bytes())
    assert document["size"] == "quick"
    assert document["scenarios"][0]["rows"] == [
        {"what": "rate", "reached": 5, "unit": "/s", "budget": 10, "more": True}
    ]


def test_every_scenario_is_run_and_states_its_question() -> None:
    found = {module.name for module in pkgutil.iter_modules(scenarios.__path__)}
    assert found == set(scenarios.ORDER)
    for name in found:
        module = importlib.import_module(f"loadtest.scenarios.{name}")
        assert (module.__doc__ or "").partition("\n\n")[0].endswith("?")
        assert callable(module.run)
