"""The chart of the project as Helm renders it, and Kubernetes' schemas to check what was rendered.

rendered(4, {"externalUrl": "https://atoll.example"})      objects of `helm template`, hooks included
errors(objects, "1.31")                                     what the strict schemas of a version say
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from harness.clients.api import Object
from harness.clients.go_programs import cache_folder, program
from harness.environment import ROOT

CHART = ROOT / "infra" / "helm" / "atoll"
RELEASE, NAMESPACE = "sea", "prod"
#: The schemas of every version of Kubernetes, as PyPI has them.
_SCHEMAS, _VERSION = "kubernetes-validate", "1.36.0"
_DOWNLOAD_TIMEOUT_S, _RENDER_TIMEOUT_S = 300.0, 60.0


class HelmError(Exception):
    """What Helm says of values that it does not take."""


def rendered(helm: int, values: dict[str, Any], kubernetes: str = "1.36") -> list[Object]:
    """The objects of the chart with some values. Raises HelmError."""
    return next(renderings([(helm, values)], kubernetes))


def renderings(wanted: list[tuple[int, dict[str, Any]]], kubernetes: str = "1.36") -> Iterator[list[Object]]:
    """The objects of several renderings. Raises HelmError at the first that is refused."""
    common = {"chart": str(CHART), "kubernetes": f"v{kubernetes}.0", "release": RELEASE, "namespace": NAMESPACE}
    lines = "".join(json.dumps({**common, "helm": helm, "values": values}) + "\n" for helm, values in wanted)
    done = subprocess.run(
        [program("helmtemplate")], input=lines, capture_output=True, text=True, timeout=_RENDER_TIMEOUT_S, check=True
    )
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        if answer["error"]:
            raise HelmError(answer["error"])
        documents = (each for manifest in answer["manifests"] for each in yaml.safe_load_all(manifest))
        yield [each for each in documents if each]


def errors(objects: list[Object], kubernetes: str) -> list[str]:
    """What the strict schemas of a version of Kubernetes say of objects; an unknown kind is an error."""
    found: list[str] = []
    for each in objects:
        group = each["apiVersion"].split("/")[0].split(".")[0]
        file = "-".join((each["kind"].lower(), *([group] if "/" in each["apiVersion"] else []), _version(each)))
        schema = _schemas(kubernetes, f"{file}.json")
        problems = jsonschema.Draft202012Validator(schema, registry=_definitions(kubernetes)).iter_errors(each)
        found += [f"{each['kind']} {each['metadata']['name']}: {problem.message}" for problem in problems]
    return found


def _version(obj: Object) -> str:
    return str(obj["apiVersion"]).rpartition("/")[2]


@cache
def _definitions(kubernetes: str) -> Registry[Any]:
    document = DRAFT202012.create_resource(_schemas(kubernetes, "_definitions.json"))
    found: Registry[Any] = Registry().with_resource("/api/_definitions.json", document)
    return found


@cache
def _schemas(kubernetes: str, file: str) -> Any:
    with zipfile.ZipFile(_archive()) as archive:
        return json.loads(
            archive.read(f"kubernetes_validate/kubernetes-json-schema/v{kubernetes}.0-local-strict/{file}")
        )


@cache
def _archive() -> Path:
    """The schemas, downloaded once for all runs."""
    folder = cache_folder() / f"{_SCHEMAS}-{_VERSION}"
    found = list(folder.glob("*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        subprocess.run([*command, f"{_SCHEMAS}=={_VERSION}"], timeout=_DOWNLOAD_TIMEOUT_S, check=True)
        found = list(folder.glob("*.whl"))
    return found[0]
