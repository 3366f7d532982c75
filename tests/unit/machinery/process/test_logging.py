"""Log lines: JSON for programs, text for people, each with the same facts."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest
import structlog

from atoll.machinery.process import feature_gates, logging


class Terminal(io.StringIO):
    """A stream that reports itself as a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def logged(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, log_format: str = logging.AUTO) -> str:
    """Log one warning with a traceback and one debug line to this standard error; return its content."""
    monkeypatch.setattr(sys, "stderr", stream)
    logging.configure("info", log_format)
    log = structlog.get_logger()
    log.debug("not shown")
    try:
        raise OSError("disk gone")
    except OSError:
        log.warning("stream stalled", stream="changes", again_s=0.5, exc_info=True)
    return stream.getvalue()


def test_a_program_reads_one_json_object_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = logged(monkeypatch, io.StringIO()).splitlines()
    facts = json.loads(line)
    assert (facts["event"], facts["level"], facts["stream"], facts["again_s"]) == (
        "stream stalled",
        "warning",
        "changes",
        0.5,
    )
    assert "OSError: disk gone" in facts["exception"]
    assert facts["timestamp"].endswith("Z")


def test_a_person_at_a_terminal_reads_time_level_event_facts_and_traceback_in_colour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = logged(monkeypatch, Terminal())
    assert "\x1b[" in text
    first, *trace = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d \[warning *\] stream stalled +stream=changes again_s=0\.5", first)
    assert trace[-1] == "OSError: disk gone"


@pytest.mark.parametrize("case", ["NO_COLOR", "a file"])
def test_text_without_colour_where_colour_is_unwanted(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1" if case == "NO_COLOR" else "")
    text = logged(monkeypatch, Terminal() if case == "NO_COLOR" else io.StringIO(), logging.TEXT)
    assert "\x1b" not in text
    assert " stream=changes " in text


def test_json_is_available_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(logged(monkeypatch, Terminal(), logging.JSON))["stream"] == "changes"


def test_text_that_is_not_unicode_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logging.configure()
    structlog.get_logger().info("path", path="\udcff")
    assert json.loads(stream.getvalue())["path"] == "\udcff"


@pytest.mark.parametrize(
    ("requests", "stream", "resolved"),
    [
        (logging.AUTO, Terminal(), logging.NONE),
        (logging.AUTO, io.StringIO(), logging.WRITES),
        (logging.ALL, Terminal(), logging.ALL),
        (logging.NONE, io.StringIO(), logging.NONE),
    ],
)
def test_requests_are_logged_one_by_one_only_for_programs(
    monkeypatch: pytest.MonkeyPatch, requests: str, stream: io.StringIO, resolved: str
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    assert logging.resolved_requests(requests, logging.AUTO) == resolved


def test_a_feature_gate_without_an_effect_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logging.configure()
    feature_gates.warn_without_effect("CacheAPIs=true,WorkspaceMounts=false", ("WorkspaceMounts",), "root")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "feature gate has no effect"
    assert json.loads(line)["gate"] == "CacheAPIs"


def frequent_lines(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, level: str = "info") -> None:
    """Log a frequent line and an ordinary one, with the same facts."""
    monkeypatch.setattr(sys, "stderr", stream)
    logging.configure(level)
    logging.frequent()("request", {"verb": "create", "code": 201})
    structlog.get_logger().info("request", verb="create", code=201)


def test_a_frequent_line_is_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    frequent_lines(monkeypatch, stream)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert list(first) == list(second)
    assert {**first, "timestamp": ""} == {**second, "timestamp": ""}
    assert abs(datetime.fromisoformat(first["timestamp"]) - datetime.fromisoformat(second["timestamp"])).seconds < 5


def test_frequent_lines_are_text_at_a_terminal_and_none_above_their_level(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, stream = Terminal(), io.StringIO()
    frequent_lines(monkeypatch, screen)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert len(re.findall(r"\[info +\] request +verb=create code=201", plain)) == 2
    frequent_lines(monkeypatch, stream, "warning")
    assert stream.getvalue() == ""


async def test_frequent_lines_of_one_turn_of_the_loop_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    stream = io.StringIO()
    monkeypatch.setattr(stream, "write", written.append)
    monkeypatch.setattr(sys, "stderr", stream)
    logging.configure("info")
    write = logging.frequent()
    for code in range(3):
        write("request", {"code": code})
    assert written == []
    await asyncio.sleep(0)
    assert [text.count("\n") for text in written] == [3]
    for code in range(300):
        write("request", {"code": code})
    assert [text.count("\n") for text in written] == [3, 256]
    logging.flush()
    assert [text.count("\n") for text in written] == [3, 256, 44]


class FullDisk(io.StringIO):
    """A file on a disk without room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "no room")

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "no room")


def test_who_logs_goes_on_while_the_disk_of_the_log_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FullDisk())
    logging.configure("info")
    logging.frequent()("request", {"code": 201})
    structlog.get_logger().warning("request", code=500)
    logging.flush()
