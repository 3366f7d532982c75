"""A kubeconfig that changes gives the clients that were made of it its new credential."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from atoll.machinery.client.renewal import renewable
from atoll.machinery.process import pki
from atoll.machinery.process.file_watch import ClientFiles
from atoll.machinery.process.private_files import PkiError
from atoll.machinery.process.tls import ClientContext


def write(file: Path, token: str, server: str = "https://host.example:6443") -> None:
    entry = {"server": server, "certificate-authority": "ca.crt"}
    document = {
        "clusters": [{"name": "one", "cluster": entry}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
        "current-context": "here",
    }
    file.write_text(yaml.safe_dump(document))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_bytes(pki.make_ca("one").certificate)
    write(tmp_path / "kubeconfig", "first")
    return tmp_path / "kubeconfig"


def test_a_target_and_those_made_of_it_have_the_token_and_the_authority_of_the_file_as_it_is_now(file: Path) -> None:
    renewed: list[ClientFiles] = []
    target = renewable(str(file), "", renewed)
    derived = msgspec.structs.replace(target, host="other.example")
    assert [*target.headers] == [("authorization", "Bearer first")]
    assert isinstance(target.tls, ClientContext)
    (file.parent / "ca.crt").write_bytes(pki.make_ca("two").certificate)
    write(file, "second")
    renewed[0].renew()
    assert [*target.headers] == [*derived.headers] == [("authorization", "Bearer second")]
    assert (target.headers[0], len(target.headers)) == (("authorization", "Bearer second"), 1)
    assert target.tls.renewals == 1
    assert target.tls is derived.tls


def test_the_kubeconfig_and_the_files_that_it_names_are_looked_at(file: Path) -> None:
    renewed: list[ClientFiles] = []
    renewable(str(file), "here", renewed)
    assert renewed[0].files == (str(file), str(file.parent / "ca.crt"))


@pytest.mark.parametrize(
    "spoil", [lambda file: file.write_text(": ["), lambda file: write(file, "x", "http://a.example")]
)
def test_a_file_that_is_of_no_use_changes_nothing(file: Path, spoil: object) -> None:
    renewed: list[ClientFiles] = []
    target = renewable(str(file), "", renewed)
    spoil(file)  # type: ignore[operator]
    with pytest.raises(PkiError):
        renewed[0].renew()
    assert [*target.headers] == [("authorization", "Bearer first")]
