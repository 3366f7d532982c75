"""The location of the files that the product ships with."""

import msgspec
import pytest

from atoll.machinery.process import resources


def test_a_source_tree_has_its_schemas_at_the_root() -> None:
    path = resources.schema_path("native", "protobuf.json")
    assert path.is_file()
    assert path.parents[2].joinpath("pyproject.toml").is_file()
    assert "kinds" in msgspec.json.decode(path.read_bytes())


def test_the_answer_does_not_depend_on_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    before = resources.schema_path("native")
    monkeypatch.chdir(str(tmp_path))
    resources.schema_root.cache_clear()
    assert resources.schema_path("native") == before


def test_a_file_that_is_not_there_is_the_readers_error() -> None:
    with pytest.raises(FileNotFoundError):
        resources.schema_path("native", "absent.json").read_bytes()
