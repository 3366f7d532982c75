"""Tables of a process that stores no objects: batches, prefixes, one owner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.machinery.storage import tables
from atoll.machinery.storage.environment.filesystem import StoreInUse
from atoll.machinery.storage.maintenance import residency
from atoll.machinery.storage.tables import TableFile


def opened(directory: Path) -> TableFile:
    return TableFile(directory, "one", "two", allow_any_filesystem=True)


def test_a_batch_is_found_again_when_the_file_is_opened_again(tmp_path: Path) -> None:
    file = opened(tmp_path / "t")
    file.write({"one": {b"a": b"1", b"b": b"2"}, "two": {b"a": b"3"}})
    file.write({"one": {b"a": None, b"gone": None}})
    file.close()
    file = opened(tmp_path / "t")
    assert dict(file.tables["one"].items()) == {b"b": b"2"}
    assert (file.tables["one"].get(b"a"), file.tables["two"].get(b"a")) == (None, b"3")
    file.close()


def test_a_batch_that_fails_writes_nothing(tmp_path: Path) -> None:
    file = opened(tmp_path / "t")
    with pytest.raises(Exception, match="mdb_put"):
        file.write({"one": {b"a": b"1", b"": b"no key"}})
    assert list(file.tables["one"].items()) == []
    file.close()


def test_rows_of_a_prefix_are_read_in_pages_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_PAGE", 3)
    file = opened(tmp_path / "t")
    rows: dict[bytes, bytes | None] = {b"p/%d" % number: b"x" for number in range(6)}
    file.write({"one": {**rows, b"o": b"", b"q": b""}})
    assert [key for key, _ in file.tables["one"].items(b"p/")] == sorted(rows)
    assert len(list(file.tables["one"].items())) == 8
    file.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    file = opened(tmp_path / "t")
    program = (
        "import sys; from pathlib import Path; from atoll.machinery.storage.tables import TableFile\n"
        "TableFile(Path(sys.argv[1]), 'one', allow_any_filesystem=True)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "t")], env=environment, capture_output=True, check=False
    )
    assert found.returncode == 1
    assert StoreInUse.__name__.encode() in found.stderr
    file.close()


def test_pages_that_were_read_are_released_once_they_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(tmp_path / "t")
    rows = {f"{number:04}".encode(): b"x" * 100_000 for number in range(100)}
    file.write({"one": rows})
    assert dict(file.tables["one"].items()) == rows
    monkeypatch.setattr(file._residency, "_limit_bytes", 1 << 40)
    assert file.trim() == 0
    monkeypatch.setattr(file._residency, "_limit_bytes", 0)
    before = file.trim()
    assert before - residency._file_bytes() > 5_000_000
    assert dict(file.tables["one"].items()) == rows
    file.close()
