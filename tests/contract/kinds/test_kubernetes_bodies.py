"""Bodies of Kubernetes' kinds that Go's own types wrote, full, empty and with zeroes behind pointers, and their JSON.

`tests/go/conformance/cmd/bodies` prints them (Kubernetes 1.36); the file is what it printed.
"""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.kinds import protobuf
from atoll.machinery.kinds.kubernetes.tables import components, rows
from atoll.machinery.kinds.native_schemas import drop_nulls
from atoll.machinery.kinds.protobuf_encoder import encode
from atoll.machinery.schema.structural.structural_schema import compile_schema
from harness.clients.go_programs import BUILD_TIMEOUT_S, program

Object = dict[str, Any]
FILE = Path(__file__).parent / "golden" / "kubernetes_bodies.jsonl.gz"
FORMS = ("full", "empty", "zeros")


@cache
def bodies() -> dict[str, Object]:
    lines = gzip.decompress(FILE.read_bytes()).splitlines()
    return {case["name"]: case for case in map(json.loads, lines)}


def kinds() -> dict[str, str]:
    """The component of each kind, by its name there."""
    return {
        f"{row.group}/{version.name} {row.kind}".removeprefix("/"): version.component
        for row in rows().values()
        for version in row.versions
    }


def expected(case: Object) -> Object:
    """Go's JSON without nulls."""
    found: Object = json.loads(json.dumps(case["json"]))
    drop_nulls(found)
    for claim in found.get("status", {}).get("nodeAllocatableResourceClaimStatuses", ()):
        # Kubernetes 1.37 replaced this field by others, and its table is the one that bodies are read by.
        del claim["resources"]
    return found


def test_every_kind_has_its_bodies() -> None:
    assert bodies().keys() == {f"{kind} {form}" for kind in kinds() for form in FORMS}


@pytest.mark.parametrize("kind", kinds())
def test_a_body_is_the_object_that_go_means_and_is_written_so_that_it_is_the_same(kind: str) -> None:
    for form in FORMS:
        case = bodies()[f"{kind} {form}"]
        found = protobuf.decode(base64.b64decode(case["protobuf"]))
        assert found == expected(case), form
        assert protobuf.decode(encode(found)) == found, form


@pytest.mark.parametrize("kind", kinds())
def test_every_field_that_go_sends_is_in_the_schema(kind: str) -> None:
    found = expected(bodies()[f"{kind} full"])
    for status in found.get("status", {}).get("nodeAllocatableResourceClaimStatuses", ()):
        assert status.keys() == {"resourceClaimName", "containers"}
    assert compile_schema(components()[kinds()[kind]], components()).unknown_fields(found) == []


@pytest.mark.long
@pytest.mark.timeout(int(BUILD_TIMEOUT_S) + 60)
def test_the_file_is_what_kubernetes_own_types_print() -> None:
    lines = "".join(f"{kind}\n" for kind in kinds())
    done = subprocess.run(
        [str(program("bodies", "conformance"))], input=lines, capture_output=True, text=True, check=True
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == list(bodies().values())
