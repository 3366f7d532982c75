"""`atoll certs secrets`: a site's files as Secrets of a namespace, taken up by the next run."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from atoll.cli.atoll import certs_secrets, main
from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.meta.user import MASTERS
from atoll.machinery.process import pki
from harness.clients.api import Api, Object
from harness.servers.shard_process import ShardProcess

NAMESPACE, PREFIX, URL = "default", "sea", "https://atoll.example"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
PROCESSES = ("shard/root=root.prod.svc:6443", "front-proxy/front-proxy-0=proxy.prod.svc:6443", "nats-server/nats-0=n0")

Run = Callable[..., int]


@pytest.fixture
def api(shard: ShardProcess) -> Iterator[Api]:
    found = Api(shard, "root")
    yield found
    found.close()


@pytest.fixture
def run(shard: ShardProcess, tmp_path: Path) -> Run:
    """A run in an empty directory, as that of a pod."""

    def run(*processes: str, prefix: str = PREFIX) -> int:
        directory = tmp_path / "work"
        shutil.rmtree(directory, ignore_errors=True)
        where = ["--directory", str(directory), "--namespace", NAMESPACE, "--name-prefix", prefix]
        site = ["--external-url", URL, "--installed-at", "/etc/atoll/{name}", "--kubeconfig", str(shard.kubeconfig)]
        return main.run(["certs", "secrets", *where, *site, *(processes or PROCESSES)])

    return run


def stored(api: Api, prefix: str = PREFIX) -> dict[str, Object]:
    """The Secrets with a prefix by the rest of their names."""
    found = {each["metadata"]["name"]: each for each in api.get(SECRETS).json["items"]}
    return {name.removeprefix(f"{prefix}-"): each for name, each in found.items() if name.startswith(f"{prefix}-")}


def groups(secret: Object) -> list[str]:
    """Whom the client certificate in a Secret belongs to."""
    found = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["client.crt"])).subject
    return [str(each.value) for each in found.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


def revisions(secrets: dict[str, Object]) -> dict[str, str]:
    return {name: each["metadata"]["resourceVersion"] for name, each in secrets.items()}


def test_a_run_takes_up_what_the_last_one_stored_and_writes_what_differs(api: Api, run: Run) -> None:
    assert run() == 0
    first = stored(api)
    assert first.keys() == {"site", "admin", "root", "front-proxy-0", "nats-0"}
    settings = base64.b64decode(first["front-proxy-0"]["data"]["settings.yaml"]).decode()
    assert "tls_cert_file: /etc/atoll/front-proxy-0/serving.crt" in settings
    assert run() == 0
    assert revisions(stored(api)) == revisions(first)

    assert run(*PROCESSES, "shard/eu-1=eu-1.prod.svc:6443") == 0
    second = stored(api)
    assert second.keys() == first.keys() | {"eu-1"}
    kept = {name for name in first if first[name]["data"].get("serving.crt") == second[name]["data"].get("serving.crt")}
    assert kept == first.keys()
    assert base64.b64decode(second["eu-1"]["data"]["serving-ca.crt"]) == base64.b64decode(
        first["root"]["data"]["serving-ca.crt"]
    )

    # Who is not named any more has no place in the site: as before, but for the Secret that stays.
    assert run() == 0
    third = stored(api)
    assert third["eu-1"] == second["eu-1"]
    assert third["root"]["data"].keys() == first["root"]["data"].keys()


def test_a_site_that_cannot_be_stored_leaves_no_process_with_files(
    api: Api, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"site.tar.gz": "bm9uZQ=="}
    api.post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other-site"}, "data": data})
    assert run(prefix="other") == 1
    assert "other-site" in capsys.readouterr().err
    assert stored(api, "other").keys() == {"site"}


@pytest.mark.parametrize(
    ("process", "text"), [("shard/site=a", "'site' cannot be the name of a process"), ("shard/root", "is no process")]
)
def test_a_name_that_is_taken_is_refused(
    api: Api, run: Run, capsys: pytest.CaptureFixture[str], process: str, text: str
) -> None:
    assert run(process, prefix="none") == 1
    assert text in capsys.readouterr().err
    assert stored(api, "none") == {}


def test_a_certificate_for_metrics_is_made_anew_for_other_groups_and_when_it_is_due(
    api: Api, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def monitoring() -> Object:
        assert run("--with-monitoring", *PROCESSES, prefix="seen") == 0
        return stored(api, "seen")["monitoring"]

    with monkeypatch.context() as earlier:
        earlier.setattr(certs_secrets, "KCP_ADMIN", "viewers")
        first = monitoring()
    second = monitoring()
    assert (groups(first), groups(second)) == ([MASTERS, "viewers"], [MASTERS, KCP_ADMIN])
    assert monitoring() == second
    monkeypatch.setattr(pki, "_RENEW_DAYS", 366)
    assert monitoring()["data"]["client.crt"] != second["data"]["client.crt"]
