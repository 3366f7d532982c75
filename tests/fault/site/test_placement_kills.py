"""kill -9 between any two steps of the placement of a workspace or of a home on another shard leaves one cluster.

The steps are those of a recorded run: each commit of a Workspace or LogicalCluster, each call and each answer, on the
shard that places and on the one that creates. So a step that is added is covered by itself.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from atoll.machinery.kcp.sharding.shards import UNSCHEDULABLE
from atoll.machinery.meta import hashes
from harness.clients.api import eventually
from harness.clients.site_workspaces import WORKSPACES, clusters, marked, on, ready, workspace
from harness.seeds import replay_command, seed_of_run
from harness.servers import kill_points
from harness.servers.kill_points import Point
from harness.servers.site import Site
from harness.waits import source_of

HOME = f"{WORKSPACES}/~"
#: Points of one kind of subject in the default tier.
FEW = 2
#: A cluster that was created late is noticed after a minute.
LONG_S = 240.0
_THIS = "tests/fault/site/test_placement_kills.py"


#: shard-1 is chosen before shard-2, and is not waited for long.
_PREFERENCE = """
import msgspec
from atoll.machinery.kcp.sharding.scheduling import Unschedulable
from atoll.replication import peers
from atoll.tenancy import placement
chosen = placement.choose
def choose(shards, wish, now_s, chance, without=()):
    try:
        return chosen(shards, wish, now_s, chance, {*without, "shard-2"})
    except Unschedulable:
        return chosen(shards, wish, now_s, chance, without)
placement.choose = choose
peers._LIMITS = msgspec.structs.replace(peers._LIMITS, request_timeout_s=1.5)
"""


class Kill(NamedTuple):
    """A point of a shard."""

    shard: str
    point: Point


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("kills")
    made = Site(directory, shards=3, proxy=False)
    for name, process in made.shards.items():
        process.environment.update(kill_points.environment(directory / name, address(made, name), _PREFERENCE))
    with made as running:
        yield running


def address(site: Site, shard: str) -> str:
    return f"kill-points-{site.layout.root}-{shard}"[-100:]


def create(site: Site, name: str, targets: Sequence[str]) -> None:
    """Create a Workspace in root for some shards, however often its own shard is killed."""
    body: dict[str, Any] = workspace(site.root.api("root"), name=name, send=False)
    expression = {"key": "name", "operator": "In", "values": targets}
    body["spec"]["location"] = {"selector": {"matchExpressions": [expression]}}

    def accepted() -> bool:
        return site.root.api("root").send("POST", WORKSPACES, body).code in {201, 409}

    again(site, accepted)


def again(site: Site, look: Callable[[], Any]) -> Any:
    """The first truthy result of `look`, however often a shard is killed meanwhile."""

    def looked() -> Any:
        for process in site.shards.values():
            if not process.running:
                process.start()
        with contextlib.suppress(OSError, http.client.HTTPException):
            return look()
        return None

    return eventually(looked, f"{source_of(look)} holds", LONG_S)


def steer(site: Site, act: Callable[..., None], *arguments: Any) -> None:
    """Tell a process what to do at its steps, though it may just be ending by the last one."""

    def done() -> bool:
        act(*arguments)
        return True

    again(site, done)


class Workspaces:
    """Workspaces in root, created on one of some shards."""

    def __init__(self, site: Site, *targets: str) -> None:
        self.site, self.targets, self.made = site, targets, list[str]()

    def make(self) -> str:
        """Return the name of one that is not made yet."""
        self.made.append(f"w-{uuid.uuid4().hex[:12]}")
        return self.made[-1]

    def finish(self, name: str) -> None:
        """Make it, and return once it is Ready."""
        create(self.site, name, self.targets)
        again(self.site, lambda: self._phase(name) == "Ready")

    def _phase(self, name: str) -> str:
        answer = self.site.root.api("root").send("GET", f"{WORKSPACES}/{name}")
        return str((answer.json.get("status") or {}).get("phase")) if answer.code == 200 else ""

    def expected(self) -> list[str]:
        """The clusters that there are to be."""
        items = self.site.root.api("root").get(WORKSPACES).json["items"]
        return sorted(item["spec"]["cluster"] for item in items if item["metadata"]["name"] in self.made)

    def found(self) -> list[str]:
        """The clusters that there are, on all shards."""
        paths = {f"root:{name}" for name in self.made}
        return sorted(cluster for cluster, path in standing(self.site) if path in paths)


class Homes:
    """Homes of users, created on shard-1 or shard-2."""

    def __init__(self, site: Site) -> None:
        self.site, self.made = site, list[str]()

    def make(self) -> str:
        """Return the name of a user without a home."""
        self.made.append(f"person-{uuid.uuid4().hex[:12]}")
        return self.made[-1]

    def finish(self, user: str) -> None:
        """Return once the user has a home."""
        again(self.site, lambda: self.site.root.api("root", user).send("GET", HOME).code == 200)

    def expected(self) -> list[str]:
        """The clusters that there are to be."""
        return sorted(map(hashes.home_cluster_name, self.made))

    def found(self) -> list[str]:
        """The clusters that there are, on all shards."""
        paths = {f"user:{name}" for name in self.made}
        return sorted(cluster for cluster, path in standing(self.site) if path in paths)


def standing(site: Site) -> list[tuple[str, str]]:
    """Name and path of all logical clusters of all shards, one with a marker only where it leads to."""
    return [
        (cluster, obj["metadata"]["annotations"].get("kcp.io/path", ""))
        for shard in site.shards.values()
        for cluster, obj in clusters(shard.api("*", "shard-admin")).items()
        if "internal.atoll.dev/moved-to" not in obj["metadata"]["annotations"]
    ]


def recorded(site: Site, subjects: Workspaces | Homes, *shards: str) -> list[Kill]:
    """Make two, and return the points that the shards passed for both: a notification is not sent each time."""
    first, second = (_passed(site, subjects, *shards) for _ in range(2))
    return [each for each in first if each in second]


def _passed(site: Site, subjects: Workspaces | Homes, *shards: str) -> list[Kill]:
    name, files = subjects.make(), {shard: site.logs / f"points-{shard}" for shard in shards}
    for shard, file in files.items():
        steer(site, kill_points.record, address(site, shard), name, file)
    subjects.finish(name)
    # What is said after it is Ready, such as to its owner.
    admin = site.root.api("root")
    ready(admin, workspace(admin, selector=on(shards[-1])))
    for shard in shards:
        steer(site, kill_points.forget, address(site, shard))
    return [Kill(shard, point) for shard, file in files.items() for point in kill_points.points(file)]


def kill(site: Site, subjects: Workspaces | Homes, kill: Kill) -> bool:
    """Make one while a shard ends at a point. Return whether the point was reached."""
    name, file, steered = subjects.make(), site.logs / "points", address(site, kill.shard)
    steer(site, kill_points.kill_at, steered, name, file, kill.point)
    subjects.finish(name)
    steer(site, kill_points.forget, steered)
    return kill.point in kill_points.points(file)


def walk(site: Site, subjects: Workspaces | Homes, kills: list[Kill], seed: int = 0) -> None:
    """Kill at each point. Not all are reached: a shard that failed is not called for a while."""
    try:
        reached = sum([kill(site, subjects, each) for each in kills])
    except BaseException as failure:
        failure.add_note(f"{kills}\nrun again: {replay_command(seed, _THIS)}")
        raise
    print(f"{reached} of {len(kills)} points were reached")
    assert reached, kills


def check(subjects: Workspaces | Homes) -> None:
    """Check what is left at the end: a cluster that was created late may take a minute to go."""
    expected = again(subjects.site, subjects.expected)
    assert len(expected) == len(subjects.made)
    again(subjects.site, lambda: subjects.found() == expected)


def walked(site: Site, subjects: Workspaces | Homes, kills: list[Kill], seed: int = 0) -> None:
    walk(site, subjects, kills, seed)
    check(subjects)


def sample(kills: list[Kill], seed: int) -> list[Kill]:
    """A few points, one of each shard at least."""
    chance = random.Random(seed)
    shards = sorted({each.shard for each in kills})
    first = [chance.choice([each for each in kills if each.shard == shard]) for shard in shards]
    rest = [each for each in kills if each not in first]
    return [*first, *chance.sample(rest, max(FEW - len(first), 0))]


@contextlib.contextmanager
def silent_shard(site: Site) -> Iterator[None]:
    """The shard that is chosen first is frozen."""
    process = site.shards["shard-1"]
    process.freeze()
    try:
        yield
    finally:
        process.thaw()


@contextlib.contextmanager
def homes(site: Site) -> Iterator[Homes]:
    """Homes are placed on shard-1, or else on shard-2."""
    master = site.root.api("root", "shard-admin")
    with marked(master, "root", annotations={UNSCHEDULABLE: "a test"}):
        yield Homes(site)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kill_at_some_steps_of_a_placement_leaves_one_cluster(site: Site) -> None:
    seed = seed_of_run(31)
    made = Workspaces(site, "shard-1")
    walked(site, made, sample(recorded(site, made, "root", "shard-1"), seed), seed)
    with homes(site) as others:
        walked(site, others, sample(recorded(site, others, "root", "shard-1"), seed), seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_kill_at_any_step_of_a_workspaces_placement_leaves_one_cluster(site: Site) -> None:
    made = Workspaces(site, "shard-1", "shard-2")
    walked(site, made, recorded(site, made, "root", "shard-1", "shard-2"))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_kill_at_any_step_of_a_home_leaves_one_cluster(site: Site) -> None:
    with homes(site) as made:
        walked(site, made, recorded(site, made, "root", "shard-1"))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["workspace", "home"])
def test_a_kill_at_any_step_while_one_shard_is_silent_leaves_one_cluster(site: Site, kind: str) -> None:
    with homes(site) as made_homes:
        made = made_homes if kind == "home" else Workspaces(site, "shard-1", "shard-2")
        with silent_shard(site):
            kills = recorded(site, made, "root", "shard-2")
            walk(site, made, kills)
        check(made)
