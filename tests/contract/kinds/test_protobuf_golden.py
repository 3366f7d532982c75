"""Bodies that k8s.io/apimachinery wrote, each kind full, empty and with zeroes behind its pointers, and its JSON.

The bytes came from the protobuf serializer of Go's client libraries (k8s.io/api 0.36); the JSON beside them is Go's
encoding of the same object without nulls.
"""

import base64
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.kinds import protobuf, registry
from atoll.machinery.meta.objects import Object

GOLDEN = msgspec.json.decode(
    (Path(__file__).parent / "golden" / "protobuf.json").read_bytes(), type=list[dict[str, object]]
)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_a_body_from_a_go_client_is_the_object_that_go_means(case: Object) -> None:
    assert protobuf.decode(base64.b64decode(case["protobuf"])) == case["json"]


@pytest.mark.parametrize(
    "case", [case for case in GOLDEN if "full" in str(case["name"])], ids=lambda case: case["name"]
)
def test_every_field_that_go_sends_is_in_the_published_schema(case: Object) -> None:
    obj = protobuf.decode(base64.b64decode(case["protobuf"]))
    group, _, _ = obj["apiVersion"].rpartition("/")
    kind = next((each for each in registry.NATIVE if (each.group, each.kind) == (group, obj["kind"])), None)
    if kind is not None:
        assert kind.schema is not None
        assert kind.schema.unknown_fields(obj) == []


def test_every_built_in_kind_has_its_bodies() -> None:
    names = {str(case["name"]) for case in GOLDEN}
    for kind in registry.NATIVE:
        for variant in ("full", "empty", "zeros"):
            assert f"{kind.api_version} {kind.kind} {variant}" in names
