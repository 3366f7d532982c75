"""OpenAPI documents read and rebuilt by Kubernetes' own code: gnostic, kube-openapi, apiextensions' builder."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.openapi import forms, parts
from atoll.machinery.apiserver.openapi.v2 import shared_parameters
from atoll.machinery.kinds.custom import kinds_of_crd
from harness.clients.go_programs import BUILD_TIMEOUT_S, program
from harness.data.manifests import real_crds
from harness.data.openapi import catalog_of, definition, keys_of, structure, written

pytestmark = pytest.mark.timeout(int(BUILD_TIMEOUT_S) + 120)
_PRESERVE, _EMBEDDED = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"
_EITHER = {"x-kubernetes-int-or-string": True}
_TEXT = {"type": "string"}
#: Everything that is published differently from how it is defined.
ODD = structure(
    nullable={"type": "string", "nullable": True},
    either=_EITHER,
    said={**_EITHER, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "x"},
    more={**_EITHER, "anyOf": [{"pattern": "^a"}, {"minimum": 3}]},
    open={**structure(a=_TEXT), _PRESERVE: True},
    openList={"type": "array", _PRESERVE: True, "items": {"type": "object"}},
    embedded={**structure(spec=_TEXT), _EMBEDDED: True},
    openEmbedded={"type": "object", _EMBEDDED: True, _PRESERVE: True},
    nullMap={"type": "object", "additionalProperties": {"type": "string", "nullable": True}},
    anyMap={"type": "object", "additionalProperties": True},
    one={
        **structure(a=_TEXT, b={"type": "string", "nullable": True}),
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        "required": ["a", "b"],
    },
    chosen={"type": "string", "enum": ["a", "b"], "default": "a"},
    number={"type": "number", "minimum": 0, "maximum": 1.5, "exclusiveMinimum": True, "multipleOf": 0.5},
    listed={
        "type": "array",
        "items": {**structure(k=_TEXT), "required": ["k"]},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "maxItems": 10,
    },
    defaulted={**structure(a={"type": "integer", "format": "int32"}), "default": {"a": 1}},
    ruled={"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self != ''", "message": "empty"}]},
    shown={"type": "string", "externalDocs": {"url": "https://example.com"}, "title": "T", "example": "e"},
    words={"type": "string", "enum": ["ü", "😀", "a: b", "- c"]},
)
_SUBRESOURCES = {
    "status": {},
    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
}
ODDS = definition("odds", ODD, subresources=_SUBRESOURCES, selectableFields=[{"jsonPath": ".chosen"}])
ROOTS = definition("roots", {**structure(x=_TEXT), _PRESERVE: True})
ROOTS["spec"]["scope"] = "Cluster"
#: Parameters that are alpha in Kubernetes 1.36 and later, and without effect in this server.
NOT_HONOURED = {"shardSelector", "ignoreStoreReadErrorWithClusterBreakingPotential"}


@pytest.mark.long
async def test_protobuf_documents_are_what_gnostic_makes_of_the_json_ones(tmp_path: Path, manifests: Path) -> None:
    catalog = catalog_of(ODDS, ROOTS, *real_crds(manifests).values())
    await written(catalog, tmp_path)
    found = _reported("documents", tmp_path)
    assert found.pop("v2")["complete"] is True
    assert set(found) == {f"v3-{key.replace('/', '+')}.json" for key in keys_of(catalog)}
    assert all(found.values()), [name for name, kept in found.items() if not kept]


@pytest.mark.parametrize("version", ["v3", "v2"])
def test_custom_kinds_are_published_as_apiextensions_publishes_them(
    tmp_path: Path, manifests: Path, version: str
) -> None:
    crds = [ODDS, ROOTS, *real_crds(manifests).values()]
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(crds))
    upstream = _reported("definitions", path)
    form = forms.V3 if version == "v3" else forms.V2
    compared = 0
    for crd in crds:
        for kind in kinds_of_crd(crd):
            part = parts.make(kind, form)
            ours = {
                "schemas": {name: json.loads(data) for name, data in part.schemas.items()},
                "paths": {path: json.loads(data) for path, data in part.paths.items()},
            }
            theirs = _upstream(upstream[f"{crd['metadata']['name']}/{kind.version}"], version, set(part.schemas))
            assert list(_differences(_comparable(theirs), _comparable(_resolved(ours, shared_parameters())))) == []
            compared += 1
    assert compared > 20


def _reported(command: str, place: Path) -> dict[str, Any]:
    """The findings of the readers in Go, by name of the check. Fails if they disagree."""
    run = [str(program("openapi")), command, str(place)]
    done = subprocess.run(run, capture_output=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-4000:].decode(errors="replace")
    checks = [json.loads(line) for line in done.stdout.split(b"\n") if line]
    return {check["check"]: check["found"] for check in checks}


def _upstream(found: dict[str, Any], version: str, names: set[str]) -> Any:
    document = found[version]
    schemas = document["components"]["schemas"] if version == "v3" else document["definitions"]
    theirs = {"schemas": {name: schemas[name] for name in names}, "paths": document["paths"]}
    return _resolved(theirs, document.get("parameters", {}))


def _resolved(value: Any, parameters: Any) -> Any:
    """The document with v2's shared parameters in place of their references."""
    if isinstance(value, list):
        return [_resolved(each, parameters) for each in value]
    if not isinstance(value, dict):
        return value
    name = str(value.get("$ref", ""))
    if name.startswith("#/parameters/"):
        return parameters[name.removeprefix("#/parameters/")]
    return {key: _resolved(each, parameters) for key, each in value.items()}


def _comparable(value: Any, *, names: bool = False) -> Any:
    """The document without texts, which differ by project, and with unordered lists sorted."""
    if isinstance(value, list):
        known = (each for each in value if not isinstance(each, dict) or each.get("name") not in NOT_HONOURED)
        kept = [_comparable(each) for each in known]
        return sorted(kept, key=lambda each: each["name"]) if kept and _are_parameters(kept) else kept
    if not isinstance(value, dict):
        return value
    return {
        key: sorted(each)
        if key in {"produces", "consumes"}
        else _comparable(each, names=not names and key in {"properties", "schemas", "paths"})
        for key, each in value.items()
        if names or key != "description"
    }


def _are_parameters(values: list[Any]) -> bool:
    return all(isinstance(each, dict) and {"name", "in"} <= each.keys() for each in values)


def _differences(theirs: Any, ours: Any, at: str = "") -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            if key not in theirs or key not in ours:
                yield f"{at}.{key} is {'ours' if key in ours else 'theirs'} alone"
            else:
                yield from _differences(theirs[key], ours[key], f"{at}.{key}")
    elif theirs != ours:
        yield f"{at}: theirs {str(theirs)[:200]}, ours {str(ours)[:200]}"
