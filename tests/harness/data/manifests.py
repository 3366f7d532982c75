"""Manifests of real projects that tests read and that the repository does not hold.

They come from two sources: `../shared/data` beside the repository, where that folder exists, and the Go modules of the
projects, through Go's module cache. Tests take the fixture `manifests` and run once for each. It is a folder with
`cert-manager/*.yaml`, `gateway-api/*.yaml` and `gateway-api/examples`; only `../shared/data` holds more projects.
Without a source the test skips.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.decoding.yaml_decoder import decode_yaml
from atoll.machinery.schema.definitions.crd import add_stored_version, default_crd
from harness.clients.go_programs import checkout_cache, find_go
from harness.environment import ROOT

SHARED_DATA = ROOT.parent / "shared" / "data"
#: Per project: the Go module, and the source of each local folder in it. The versions are the releases nearest to
#: `../shared/data`; both lie in the module cache, verified by Go's checksum database.
MODULES = {
    "cert-manager": ("github.com/cert-manager/cert-manager@v1.21.2", {"": "deploy/crds"}),
    "gateway-api": ("sigs.k8s.io/gateway-api@v1.6.3", {"": "config/crd/standard", "examples": "examples/standard"}),
}
#: A policy engine whole: some sixty objects, the definitions of reports among them.
POLICY_ENGINE = ("github.com/kyverno/kyverno@v1.15.2", "config/install-latest-testing.yaml")
NO_POLICY_ENGINE = "no policy engine: there is no Go, or its module cannot be had"
#: The version that the Gateway API's files in `../shared/data` carry, and the one that tests read instead.
DEVELOPMENT, RELEASE = "v0.0.0-dev", "v1.6.3"
DOWNLOAD_TIMEOUT_S = 100.0
NO_SOURCE = "no manifests of real projects: there is neither ../shared/data nor Go to download their modules"


def sources() -> list[str]:
    """The sources that this machine may have, the fullest first: `shared` and `modules`."""
    shared = ["shared"] if SHARED_DATA.is_dir() else []
    return [*shared, "modules"] if find_go() or not shared else shared


@cache
def _found(source: str) -> tuple[Path | None, str]:
    """The folder of a source, or none and the reason."""
    if source == "shared":
        return _released(), ""
    command = find_go()
    if command is None:
        return None, NO_SOURCE
    try:
        return _linked(command), ""
    except (subprocess.SubprocessError, OSError) as error:
        return None, f"no manifests of real projects: go mod download failed ({type(error).__name__})"


def manifests_folder(source: str) -> Path:
    """The folder of the manifests of a source. Skips the test if they cannot be had."""
    folder, reason = _found(source)
    if folder is None:
        pytest.skip(reason)
    return folder


def _linked(command: str) -> Path:
    """A folder of links into the module cache, made once; its name holds the versions."""
    versions = "-".join(module.rpartition("@")[2] for module, _ in MODULES.values())

    def fill(made: Path) -> None:
        for project, (module, folders) in MODULES.items():
            source = module_folder(command, module)
            for name, inside in folders.items():
                _link_files(source / inside, made / project / name)

    return _made(f"manifests-{versions}", fill)


def _released() -> Path:
    """A folder of links into `../shared/data`, in which the Gateway API is a release.

    The policy that comes with its definitions, which tests put in place, refuses development versions of them.
    """

    def fill(made: Path) -> None:
        _link_files(SHARED_DATA, made)
        for path in (made / "gateway-api").glob("*.yaml"):
            text = path.read_text()
            path.unlink()
            path.write_text(text.replace(DEVELOPMENT, RELEASE))

    sources = b"".join(path.read_bytes() for path in sorted((SHARED_DATA / "gateway-api").glob("*.yaml")))
    name = f"manifests-shared-{hashlib.sha256(sources).hexdigest()[:12]}"
    found = checkout_cache() / name
    return found if found.is_dir() else _made(name, fill)


def _made(name: str, fill: Callable[[Path], None]) -> Path:
    """A cached folder, made anew."""
    place = checkout_cache() / name
    made = Path(tempfile.mkdtemp(dir=checkout_cache()))
    try:
        fill(made)
        shutil.rmtree(place, ignore_errors=True)
        made.rename(place)
    except OSError:
        # Another worker was faster; its files are the same.
        if not place.is_dir():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return place


def _link_files(source: Path, target: Path) -> None:
    """Link each YAML file below `source`: kubectl walks real folders and reads linked files."""
    for path in source.rglob("*.yaml"):
        link = target / path.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)


def module_folder(command: str, module: str) -> Path:
    """Where Go's module cache holds `path@version`, downloaded if it is not there."""
    done = subprocess.run(
        [command, "mod", "download", "-json", module],
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_TIMEOUT_S,
        check=True,
        cwd=tempfile.gettempdir(),
    )
    return Path(json.loads(done.stdout)["Dir"])


def policy_engine() -> Path:
    """The manifest of a policy engine. Skips the test if it cannot be had."""
    command, (module, file) = find_go(), POLICY_ENGINE
    if command is None:
        pytest.skip(NO_POLICY_ENGINE)
    try:
        return module_folder(command, module) / file
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"{NO_POLICY_ENGINE} ({type(error).__name__})")


def documents(path: Path) -> Iterator[Object]:
    """The non-empty documents of a YAML file."""
    for text in path.read_text().split("\n---\n"):
        value = decode_yaml(text.removeprefix("---\n").encode()).value
        if isinstance(value, dict):
            yield value


def definition_files(folder: Path) -> list[Path]:
    """The files of cert-manager and the Gateway API: CustomResourceDefinitions, and one of admission policies."""
    found = sorted([*folder.glob("cert-manager/*.yaml"), *folder.glob("gateway-api/*.yaml")])
    assert len(found) >= 16, f"only {len(found)} files in {folder}"
    return found


def real_crds(folder: Path) -> dict[str, Object]:
    """Every CustomResourceDefinition of the real projects by name, defaulted and established."""
    found: dict[str, Object] = {}
    for path in definition_files(folder):
        for document in documents(path):
            if document["kind"] == "CustomResourceDefinition":
                default_crd(document)
                found[document["metadata"]["name"]] = established(document)
    assert len(found) >= 16, f"only {len(found)} definitions in {folder}"
    return found


def established(crd: Object) -> Object:
    """The definition after the controller accepted its names."""
    crd["status"] = {
        "acceptedNames": crd["spec"]["names"],
        "conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}],
    }
    add_stored_version(crd)
    return crd


def gateway_examples(folder: Path) -> list[Object]:
    """Objects of the Gateway API's kinds, as its authors wrote them."""
    paths = sorted((folder / "gateway-api" / "examples").rglob("*.yaml"))
    return [document for path in paths for document in documents(path) if "gateway" in document["apiVersion"]]
