"""One shared shard for the folders without their own (the API, exports, bindings, views), and workspaces on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, workspace_under
from harness.servers.shard_process import ShardProcess
from harness.servers.third_party_view import Certificates
from harness.servers.virtual_workspaces import OfSquads, OfThirdParty

USERS = (
    'alice-token,alice,u-alice,"team-a,team-b"\nbob-token,bob,u-bob\nworker-token,worker,u-w\nnobody-token,nobody,u-n\n'
)


@pytest.fixture(scope="package")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    directory: Path = tmp_path_factory.mktemp("shard")
    tokens = directory / "tokens.csv"
    tokens.write_text(USERS)
    flags = ("--token-auth-file", str(tokens), "--audit-log-path", str(directory / "audit.log"))
    with ShardProcess(directory, *flags) as running:
        yield running


@pytest.fixture
def audit_path(shard: ShardProcess) -> Path:
    return shard.root.parent / "audit.log"


@pytest.fixture(scope="package")
def admin(shard: ShardProcess) -> Iterator[Api]:
    """kcp-admin in `root`."""
    api = Api(shard, "root")
    yield api
    api.close()


@pytest.fixture(scope="package")
def master(shard: ShardProcess) -> Iterator[Api]:
    """shard-admin, of system:masters, in `root`."""
    api = Api(shard, "root", "shard-admin")
    yield api
    api.close()


@pytest.fixture
def api(admin: Api) -> Iterator[Api]:
    """kcp-admin in a new workspace of type universal."""
    here = admin.at(workspace_under(admin, type_="universal"))
    yield here
    here.close()


@pytest.fixture
def alice(api: Api) -> Iterator[Api]:
    """A user with no rights in the workspace."""
    alice = Api(api.shard, api.cluster, token="alice-token")
    yield alice
    alice.close()


@pytest.fixture
def provider(admin: Api) -> Iterator[Api]:
    """kcp-admin in a new workspace from which APIs are exported."""
    here = admin.at(workspace_under(admin, type_="universal"))
    yield here
    here.close()


@pytest.fixture
def consumer(admin: Api) -> Iterator[Api]:
    """kcp-admin in a new workspace that binds APIs."""
    here = admin.at(workspace_under(admin, type_="universal"))
    yield here
    here.close()


@pytest.fixture(scope="package")
def third(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfThirdParty]:
    """A shard that forwards requests of views, and a third party's view with its provider."""
    directory = tmp_path_factory.mktemp("views")
    certificates = Certificates(directory / "certificates")
    (directory / "tokens.csv").write_text(USERS)
    flags = [*certificates.shard_flags, "--token-auth-file", str(directory / "tokens.csv")]
    with ShardProcess(directory / "shard", *flags) as running:
        made = OfThirdParty(Api(running, "root"), certificates, directory / "view")
        yield made
        made.view.stop()


@pytest.fixture(scope="package")
def squads(third: OfThirdParty, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfSquads]:
    """The views of a third party that are written and that join workspaces, with their provider."""
    made = OfSquads(third.admin, third.certificates, tmp_path_factory.mktemp("squads"))
    yield made
    made.view.stop()
