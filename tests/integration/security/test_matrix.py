"""Every route, verb and caller, in every form of URL; and each guard taken out, to see that the matrix tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api
from harness.servers.shard_process import ShardProcess
from integration.security import matrix

_SERVICES = Path(__file__).parents[3] / "services"

USERS = "nobody-token,nobody,u-nobody\nalice-token,alice,u-alice\nhelper-token,helper,u-helper\n"
#: Places where nobody of the matrix has anything to look for, whatever he may do in his workspace.
CLOSED = (
    "",
    "/clusters/root",
    "/clusters/*",
    "/clusters/system:admin",
    "/clusters/system:shard",
    "/clusters/unheard-of",
    "/clusters/root:unheard-of",
)
#: Not even the health of the process is told here.
SEALED = (
    "/services/initializingworkspaces/root:universal/clusters/*",
    "/services/terminatingworkspaces/root:universal/clusters/root",
    "/services/nothing",
    "/services/apiexport/root/tenancy.kcp.io/clusters/*",
    "/services/apiexport/root/tenancy.kcp.io/clusters/root",
    "/services/apiresourceschema/root/clusters/*",
    "/services/apiresourceschema/root/clusters/root",
    "/services/apiresourceschema/root",
    "/services/replication/root/unheard-of/clusters/*",
    "/clusters/root/services/initializingworkspaces/root:universal/clusters/*",
)


@pytest.fixture(scope="module")
def town(shard: ShardProcess) -> Iterator[matrix.Town]:
    yield matrix.Town(Api(shard, "root"))


def test_the_matrix_is_the_whole_api(town: matrix.Town) -> None:
    routes = list(town.routes())
    assert len(routes) > 300
    assert set(matrix.METHODS) <= {route.verb for route in routes}


@pytest.mark.parametrize("form", ["path", "id", "encoded", "slashes"])
def test_inside_the_workspace_everybody_gets_what_the_model_says(town: matrix.Town, form: str) -> None:
    path = town.here.cluster
    prefix = {
        "path": f"/clusters/{path}",
        "id": f"/clusters/{town.cluster}",
        "slashes": f"/clusters//{path}/",
        "encoded": f"/clusters/{path.replace(':', '%3A')}",
    }[form]
    callers = matrix.CALLERS if form in {"path", "id"} else ("stranger", "member", "robot", "borrowed")
    assert list(matrix.mistakes(town, prefix, callers)) == []


@pytest.mark.parametrize("prefix", [*CLOSED, *SEALED])
def test_elsewhere_nobody_gets_anything(town: matrix.Town, prefix: str) -> None:
    named = ("member", "robot") if prefix not in {"", "/clusters/root"} else ("forged", "borrowed")
    callers = ("anonymous", *named)
    health = matrix.PUBLIC if prefix in CLOSED else ()
    found = [each for each in matrix.mistakes(town, prefix, callers, health) if "/version" not in each]
    assert found == []


def test_upper_case_is_another_workspace_or_none(town: matrix.Town) -> None:
    for name in (town.here.cluster.upper(), town.cluster.upper()):
        answer = town.sender("admin", f"/clusters/{name}").send("GET", "/api/v1/configmaps")
        assert answer.code in {400, 403}, name


#: Each a guard, and the Python that takes it out of a shard's process before it starts.
GUARDS = {
    "the authorizer": """
import atoll.machinery.apiserver.authorization.authorizer as authorizer
from atoll.machinery.apiserver.authorization.attributes import Decision
authorizer.Authorizer.authorize = lambda self, snapshot, attributes, deep=False: Decision(True)
""",
    "the door of workspaces": """
import atoll.machinery.apiserver.authorization.chain as chain
chain.STEPS = tuple((name, (lambda q: (chain.Outcome.NEXT, ""))) if name == "02-content" else (name, step)
                    for name, step in chain.STEPS)
""",
    "the home of service accounts": """
import atoll.machinery.apiserver.authorization.chain as chain
from atoll.machinery.apiserver.authorization.effective_users import EffectiveUser, EffectiveUsers
chain.effective_users = lambda user, cluster: EffectiveUsers((EffectiveUser(user.name, user.groups),), True)
""",
    "identity headers": """
import atoll.machinery.apiserver.authentication.authenticator as authenticator
authenticator.Authenticator._forwarded = (
    lambda self, request, certificate, sent, cluster: self._headers.user(request.headers, sent))
""",
    "impersonation": """
import atoll.machinery.apiserver.authentication.impersonation as impersonation
impersonation.Impersonator.act_as = lambda self, want, sender, cluster, snapshot: impersonation.User(
    want.user, tuple(want.groups))
""",
    "statuses of the system": """
import atoll.machinery.apiserver.authorization.chain as chain
chain.STEPS = tuple((name, (lambda q: (chain.Outcome.NEXT, ""))) if name in {"03-systemcrd", "04-maxpermissionpolicy"}
                    else (name, step) for name, step in chain.STEPS)
""",
    "the verb of the lifecycle views": """
import atoll.virtualworkspaces.lifecycle as lifecycle
lifecycle.LifecycleView.opens = lambda self, view, user, own: True
""",
    "the content of exports": """
import atoll.virtualworkspaces.export_request as passage
passage.Sources.may_reach_content = lambda self, view, user, export, verb: True
""",
    "wildcards": """
import atoll.machinery.apiserver.serving.pipeline as pipeline
from atoll.machinery.apiserver.authorization.attributes import Decision
from atoll.machinery.apiserver.request import RequestScope
plain = pipeline.RequestPipeline._enter
def enter(self, request, snapshot):
    plain(self, request, snapshot)
    if request.info.is_wildcard:
        request.scope = RequestScope(judge=lambda view, verb: Decision(True))
pipeline.RequestPipeline._enter = enter
""",
}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_that_is_taken_out_is_missed(tmp_path: Path, guard: str) -> None:
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(GUARDS[guard])
    (tmp_path / "tokens.csv").write_text(USERS)
    environment = {"PYTHONPATH": f"{tmp_path / 'patch'}:{_SERVICES}"}
    with ShardProcess(tmp_path, "--token-auth-file", str(tmp_path / "tokens.csv"), environment=environment) as shard:
        town = matrix.Town(Api(shard, "root"))
        assert next(_somewhere(town), ""), f"without {guard} nothing was different"


def _somewhere(town: matrix.Town) -> Iterator[str]:
    """Mistakes, inside the workspace first."""
    yield from matrix.mistakes(town, f"/clusters/{town.here.cluster}")
    for prefixes, health in ((CLOSED[2:], matrix.PUBLIC), (SEALED, ())):
        for prefix in prefixes:
            yield from matrix.mistakes(town, prefix, ("member",), health)


def test_every_boundary_of_the_table_names_a_test_that_exists() -> None:
    table = (_SERVICES / "atoll/machinery/apiserver/authorization/DESIGN.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| `([\w./]+)` \| `([\w./]+)::(\w+)` \|$", table, re.MULTILINE)
    assert len(rows) >= 12
    for place, file, test in rows:
        assert (_SERVICES / "atoll" / place).exists(), place
        assert f"def {test}(" in (_SERVICES.parent / "tests" / file).read_text(), test
