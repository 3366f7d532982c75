"""tests/MAP.md is what `python tests/write_map.py` writes today."""

from __future__ import annotations

from importlib import util
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_the_map_of_tests_is_current() -> None:
    spec = util.spec_from_file_location("write_map", TESTS / "write_map.py")
    assert spec is not None
    assert spec.loader is not None
    write_map = util.module_from_spec(spec)
    spec.loader.exec_module(write_map)
    assert (TESTS / "MAP.md").read_text() == write_map.content(), "run: python tests/write_map.py"
