"""`atoll certs` is killed at each file that it writes or removes while an authority is replaced, and run again.

Each step then ends where it would have ended: what is not trusted by all does not sign, and nothing stays that cannot
be verified.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from atoll.cli.atoll import main
from atoll.machinery.process.pki import issued_by, pem_to_der
from atoll.machinery.process.private_files import load_pair

pytestmark = pytest.mark.long

PROCESSES = ("shard/root=root.example", "front-proxy/proxy-0=p0.example")
BOTH = ("root", "proxy-0")
ADMIN = "root/logical-cluster-admin.kubeconfig"


class Case(NamedTuple):
    """The copies of what an authority signed, the processes that trust it, and every which file a kill comes at."""

    signed: tuple[str, ...]
    trusting: tuple[str, ...]
    stride: int = 1


CASES = {
    "requestheader-ca": Case(("proxy-0/proxy.crt", "root/proxy.crt"), ("root",)),
    "client-ca": Case((ADMIN, "admin.kubeconfig"), BOTH, 3),
    "serving-ca": Case(("proxy-0/serving.crt", "root/serving.crt"), BOTH, 3),
}


class Killed(BaseException):
    """The process ends here."""


def certs(site: Path, command: str, name: str) -> int:
    return main.run(["certs", command, "--directory", str(site), name])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs") / "site"
    begun = ["certs", "init", "--directory", str(directory), "--external-url", "https://atoll.example"]
    assert main.run([*begun, *PROCESSES]) == 0
    return directory


def killed_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process end before the file of this number is renamed into its place, or removed."""
    left = [number]

    def ends(change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: Path, *arguments: Any, **named: Any) -> Any:
            if path.exists():
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
            return change(path, *arguments, **named)

        return counted

    monkeypatch.setattr(Path, "replace", ends(Path.replace))
    monkeypatch.setattr(Path, "unlink", ends(Path.unlink))


def each_kill(site: Path, scratch: Path, command: str, name: str) -> Iterator[Path]:
    """Yield a copy of the site for every place at which the command was killed, after it was run again."""
    for number in range(0, 1000, CASES[name].stride):
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(site, scratch)
        with pytest.MonkeyPatch.context() as patch:
            killed_at(number, patch)
            try:
                assert certs(scratch, command, name) == 0
            except Killed:
                pass
            else:
                assert number > 2, "it changes files"
                return
        assert certs(scratch, command, name) == 0
        yield scratch
    raise AssertionError("it changes more files than there are")


def signed(site: Path, name: str) -> list[bytes]:
    return [pem_to_der(certificate(site / file)) for file in CASES[name].signed]


def certificate(path: Path) -> bytes:
    """The certificate in a file, or the one that a kubeconfig presents."""
    content = path.read_bytes()
    if path.suffix != ".kubeconfig":
        return content
    return base64.b64decode(yaml.safe_load(content)["users"][0]["user"]["client-certificate-data"])


def trusted(site: Path, name: str) -> list[bytes]:
    return [(site / process / f"{name}.crt").read_bytes() for process in CASES[name].trusting]


def pairs_hold(site: Path) -> None:
    for process in BOTH:
        for pair in ("serving", "proxy"):
            load_pair(site / process / f"{pair}.crt", site / process / f"{pair}.key")


@pytest.mark.parametrize("name", CASES)
def test_a_step_that_was_killed_is_completed_by_the_next_run(
    made: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No power is cut here.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    site, scratch = tmp_path / "site", tmp_path / "killed"
    shutil.copytree(made, site)
    old = trusted(site, name)
    for found in each_kill(site, scratch, "renew", name):
        pairs_hold(found)
        assert signed(found, name) == signed(site, name), "who has not got the new files yet knows none of its own"
        assert all(
            each.startswith(before) and each != before for each, before in zip(trusted(found, name), old, strict=True)
        )
    assert certs(site, "renew", name) == 0
    both = trusted(site, name)
    for found in each_kill(site, scratch, "renew", name):
        pairs_hold(found)
        for each in signed(found, name):
            assert all(issued_by(each, authority) for authority in (*both, *trusted(found, name)))
            assert not issued_by(each, old[0])
    assert certs(site, "renew", name) == 0
    for found in each_kill(site, scratch, "revoke", name):
        pairs_hold(found)
        assert all(issued_by(each, authority) for each in signed(found, name) for authority in trusted(found, name))
        assert not any(issued_by(each, authority) for each in signed(made, name) for authority in trusted(found, name))
