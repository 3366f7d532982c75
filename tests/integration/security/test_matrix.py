"""Every route, verb and caller, in every form of URL; the matrix must detect the removal of each guard."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api
from harness.seeds import seed_of_run
from harness.servers.mutant_shard import MutantShard
from harness.tiers import every, only
from integration.security import matrix

_SERVICES = Path(__file__).parents[3] / "services"

USERS = "nobody-token,nobody,u-nobody\nalice-token,alice,u-alice\nhelper-token,helper,u-helper\n"
#: Places without rights for any user of the matrix, whatever his rights in his workspace.
CLOSED = (
    "",
    "/clusters/root",
    "/clusters/*",
    "/clusters/system:admin",
    "/clusters/system:shard",
    "/clusters/unheard-of",
    "/clusters/root:unheard-of",
)
#: Places at which even the health of the process is closed.
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
    "/services/cache/shards/*/clusters/*",
    "/clusters/root/services/initializingworkspaces/root:universal/clusters/*",
)
#: The number of resource routes for the second and the third caller.
SAMPLE = 60
#: The first caller tries every third route of a prefix: all prefixes together try each several times.
SHARE = 3


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutantShard]:
    directory = tmp_path_factory.mktemp("matrix")
    (directory / "tokens.csv").write_text(USERS)
    with MutantShard(directory, "--token-auth-file", str(directory / "tokens.csv")) as running:
        yield running


@pytest.fixture(scope="module")
def town(shard: MutantShard) -> Iterator[matrix.Town]:
    yield matrix.Town(Api(shard, "root"))


#: Each a guard, a caller and prefix that detect its absence ("" for the workspace), and the Python that removes it.
GUARDS = {
    "the authorizer": (
        "stranger",
        "",
        """
import atoll.machinery.apiserver.authorization.authorizer as authorizer
from atoll.machinery.apiserver.authorization.attributes import Decision
authorizer.Authorizer.authorize = lambda self, snapshot, attributes, deep=False: Decision(True)
""",
    ),
    "the door of workspaces": (
        "stranger",
        "",
        """
import atoll.machinery.apiserver.authorization.chain as chain
chain.STEPS = tuple((name, (lambda q: (chain.Outcome.NEXT, ""))) if name == "02-content" else (name, step)
                    for name, step in chain.STEPS)
""",
    ),
    "the home of service accounts": (
        "robot",
        "",
        """
import atoll.machinery.apiserver.authorization.chain as chain
from atoll.machinery.apiserver.authorization.effective_users import EffectiveUser, EffectiveUsers
chain.effective_users = lambda user, cluster: EffectiveUsers((EffectiveUser(user.name, user.groups),), True)
""",
    ),
    "identity headers": (
        "forged",
        "",
        """
import atoll.machinery.apiserver.authentication.authenticator as authenticator
plain = authenticator.Authenticator._sender
def _sender(self, request, certificate, *more):
    sent = self._headers.sent(request.headers)
    return self._headers.user(request.headers, sent) if sent else plain(self, request, certificate, *more)
authenticator.Authenticator._sender = _sender
""",
    ),
    "impersonation": (
        "borrowed",
        "",
        """
import atoll.machinery.apiserver.authentication.impersonation as impersonation
impersonation.Impersonator.act_as = lambda self, want, sender, cluster, snapshot: impersonation.User(
    want.user, tuple(want.groups))
""",
    ),
    "statuses of the system": (
        "admin",
        "",
        """
import atoll.machinery.apiserver.authorization.chain as chain
chain.STEPS = tuple((name, (lambda q: (chain.Outcome.NEXT, ""))) if name in {"03-systemcrd", "04-maxpermissionpolicy"}
                    else (name, step) for name, step in chain.STEPS)
""",
    ),
    "the verb of the lifecycle views": (
        "member",
        "/services/terminatingworkspaces/root:universal/clusters/root",
        """
import atoll.virtualworkspaces.lifecycle as lifecycle
lifecycle.LifecycleView.opens = lambda self, view, user, own: True
""",
    ),
    "the cache": (
        "admin",
        "/services/cache/shards/*/clusters/*",
        """
import atoll.virtualworkspaces.cache as cache
from atoll.machinery.apiserver.authorization.attributes import Decision
cache.CacheView.opens = lambda self, view, user, own: True
cache.masters_only = lambda request: lambda view, verb: Decision(True)
""",
    ),
    "the content of exports": (
        "member",
        "/services/apiexport/root/tenancy.kcp.io/clusters/*",
        """
import atoll.virtualworkspaces.export_request as passage
passage.Sources.may_reach_content = lambda self, view, user, export, verb: True
""",
    ),
    "wildcards": (
        "member",
        "/clusters/*",
        """
import atoll.machinery.apiserver.serving.pipeline as pipeline
from atoll.machinery.apiserver.authorization.attributes import Decision
from atoll.machinery.apiserver.request import RequestScope
plain = pipeline.RequestPipeline._enter
def enter(self, request, snapshot):
    plain(self, request, snapshot)
    if request.info.is_wildcard:
        request.scope = RequestScope(authorize=lambda view, verb: Decision(True))
pipeline.RequestPipeline._enter = enter
""",
    ),
}


@pytest.mark.parametrize("guard", every(2, GUARDS))
def test_a_guard_that_is_taken_out_is_missed(shard: MutantShard, guard: str) -> None:
    """It uses its own workspace, since the shard caches decisions. All tests below have the guards again."""
    caller, prefix, code = GUARDS[guard]
    town = matrix.Town(Api(shard, "root"))
    health = matrix.PUBLIC if prefix in CLOSED else () if prefix in SEALED else None
    with shard.without(code):
        found = matrix.mistakes(town, prefix or f"/clusters/{town.here.cluster}", (caller,), health)
        assert next(found, ""), f"without {guard} nothing was different"


def test_the_matrix_is_the_whole_api(town: matrix.Town) -> None:
    assert len(town.routes) > 300
    assert set(matrix.METHODS) <= {route.verb for route in town.routes}


@pytest.mark.parametrize("form", only({"path", "slashes"}, ["path", "id", "encoded", "slashes"]))
def test_inside_the_workspace_everybody_gets_what_the_model_says(town: matrix.Town, form: str) -> None:
    path = town.here.cluster
    prefix = {
        "path": f"/clusters/{path}",
        "id": f"/clusters/{town.cluster}",
        "slashes": f"/clusters//{path}/",
        "encoded": f"/clusters/{path.replace(':', '%3A')}",
    }[form]
    if form in {"path", "id"}:
        assert list(matrix.mistakes(town, prefix)) == []
        return
    found = [*matrix.mistakes(town, prefix, ("member",))]
    seed = f"{seed_of_run(11)} {form}"
    found += matrix.mistakes(town, prefix, ("stranger", "robot", "borrowed"), routes=sample(town, seed))
    assert found == [], f"seed {seed}"


def sample(town: matrix.Town, seed: str) -> list[matrix.Route]:
    """Every non-resource path, and some of the others."""
    resources = [route for route in town.routes if route.resource]
    return [*random.Random(seed).sample(resources, SAMPLE), *(route for route in town.routes if not route.resource)]


@pytest.mark.parametrize("share", [SHARE, pytest.param(1, marks=pytest.mark.long)], ids=["a share", "all"])
@pytest.mark.parametrize("prefix", every(2, [*CLOSED, *SEALED]))
def test_elsewhere_nobody_gets_anything(town: matrix.Town, prefix: str, share: int) -> None:
    """One caller tries the routes of its share, others non-resource paths and a sample of the rest."""
    whole, other = ("member", "robot") if prefix not in {"", "/clusters/root"} else ("borrowed", "anonymous")
    health = matrix.PUBLIC if prefix in CLOSED else ()
    seed = f"{seed_of_run(11)} {prefix}"
    routes = town.routes[(*CLOSED, *SEALED).index(prefix) % share :: share]
    found = [*matrix.mistakes(town, prefix, (whole,), health, routes)]
    found += matrix.mistakes(town, prefix, ("anonymous", other), health, sample(town, seed))
    assert [each for each in found if "/version" not in each] == [], f"seed {seed}"
    plain, forged = town.sender("stranger", prefix), town.sender("forged", prefix)
    different = [route for route in sample(town, seed) if matrix.tried(plain, route) != matrix.tried(forged, route)]
    assert different == [], f"seed {seed}"


def test_upper_case_is_another_workspace_or_none(town: matrix.Town) -> None:
    for name in (town.here.cluster.upper(), town.cluster.upper()):
        answer = town.sender("admin", f"/clusters/{name}").send("GET", "/api/v1/configmaps")
        assert answer.code in {400, 403}, name


def test_every_boundary_of_the_table_names_a_test_that_exists() -> None:
    table = (_SERVICES / "atoll/machinery/apiserver/authorization/DESIGN.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| `([\w./]+)` \| `([\w./]+)::(\w+)` \|$", table, re.MULTILINE)
    assert len(rows) >= 12
    for place, file, test in rows:
        assert (_SERVICES / "atoll" / place).exists(), place
        assert f"def {test}(" in (_SERVICES.parent / "tests" / file).read_text(), test
