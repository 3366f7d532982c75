"""`kubectl kcp crd snapshot`: every definition of real projects becomes a schema, and its text parses to the same."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from atoll.cli.kubectl import crd_snapshot, kcp
from atoll.machinery.kcp.apis.resource_schema import resource_schema
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.schema.decoding.yaml_decoder import decode_yaml
from harness.clients.api import crd
from harness.data.manifests import definition_files, documents


@pytest.mark.long
def test_what_is_printed_says_the_same_as_yaml_and_as_json(manifests: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in definition_files(manifests):
        printed_is_the_schema(path, capsys)


def printed_is_the_schema(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [resource_schema(each, "today") for each in documents(path) if each["kind"] == "CustomResourceDefinition"]
    arguments = ["crd", "snapshot", "-f", str(path), "--prefix", "today"]
    code = kcp.dispatch(arguments)
    printed = capsys.readouterr()
    if not wanted:
        assert code == 1
        assert printed.out == ""
        assert printed.err.endswith("holds no CustomResourceDefinition\n")
        return
    assert code == 0, path.name
    assert [decode_yaml(text.encode()).value for text in printed.out.split("\n---\n")] == wanted
    assert kcp.dispatch([*arguments, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == wanted[0]


def test_texts_that_look_like_something_else_stay_texts(capsys: pytest.CaptureFixture[str]) -> None:
    odd = ["1e3", "0x1F", "010", "on", "~", "2020-01-01", "12:30", "1_000", ".5", "+1", "a\nb ", "", "=", "é"]
    definition = crd("circles")
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["enum"] = odd
    assert feed(definition) == 0
    found = decode_yaml(capsys.readouterr().out.encode()).value
    assert found["spec"]["versions"][0]["schema"]["properties"]["spec"]["enum"] == odd


def feed(*given: Object) -> int:
    """Run it on definitions in a pipe."""
    text = b"\n---\n".join(encode_json(each) for each in given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        return kcp.dispatch(["crd", "snapshot", "-f", "-", "--prefix", "v1"])


def test_a_pipe_may_hold_lists_and_other_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    listed: Object = {"kind": "List", "items": [crd("circles"), crd("squares")]}
    assert feed(listed, {"kind": "ConfigMap", "metadata": {"name": "a"}}) == 0
    printed = capsys.readouterr()
    assert printed.out.count("kind: APIResourceSchema") == 2
    assert printed.err == "Warning: ConfigMap a is left out: it is no CustomResourceDefinition\n"


def test_nothing_is_printed_where_one_definition_has_no_schema(capsys: pytest.CaptureFixture[str]) -> None:
    broken = crd("squares")
    broken["spec"]["versions"][0].pop("schema")
    assert feed(crd("circles"), broken) == 1
    printed = capsys.readouterr()
    assert (printed.out, "version v1 has no schema" in printed.err) == ("", True)


@pytest.mark.parametrize("text", ["{", "- a\n- b\n", "a: b: c\n", "kind: A\nkind: B\n"])
def test_what_is_no_manifest_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "file").write_text(text)
    assert kcp.dispatch(["crd", "snapshot", "-f", str(tmp_path / "file"), "--prefix", "v1"]) == 1
    assert capsys.readouterr().err.startswith("Error: not a manifest")
    assert kcp.dispatch(["crd", "snapshot", "-f", str(tmp_path / "none"), "--prefix", "v1"]) == 1


def test_only_snapshot_is_known_of_crd(capsys: pytest.CaptureFixture[str]) -> None:
    assert kcp.dispatch(["crd"]) == 2
    assert "snapshot" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        crd_snapshot.dispatch(["--prefix", "v1"])
    assert ended.value.code == 2
