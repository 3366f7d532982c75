"""A site with two random faults at a time: no acknowledged write is lost, and all shards converge."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.clients.site_operations import MAPS, down, frozen, grown, made, served
from harness.clients.site_workspaces import WORKSPACES, gone, ready, workspace
from harness.oracles.site_convergence import converged
from harness.seeds import replay_command, seed_of_run
from harness.servers.site import Site, SiteProcess

_THIS = "tests/fault/site/test_campaign.py"
ROUNDS = 25
Fault = Callable[[SiteProcess], AbstractContextManager[None]]


@contextlib.contextmanager
def wiped(nats: SiteProcess) -> Iterator[None]:
    """Stop NATS and delete its store."""
    with down(nats):
        nats.delete_store()  # type: ignore[attr-defined]
        yield


class Campaign:
    """A site, its acknowledged writes, and the random source."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self._dice = site, random.Random(seed)
        tree = grown(site)
        #: Paths of writes, with their shard and cluster.
        self.places = {tree.org: ("shard-1", tree.clusters[tree.org]), tree.team: ("shard-2", tree.clusters[tree.team])}
        path, cluster = made(site, tree.team, "root")
        self.places[path] = ("root", cluster)
        self._written: dict[tuple[str, str], str] = {}
        self._deleted: set[tuple[str, str]] = set()
        self._number = 0
        self.reports: list[str] = []

    def round(self) -> None:
        """Inject two faults, write to every shard that answers, and end the faults."""
        processes = self._dice.sample(self.site.processes, 2)
        with contextlib.ExitStack() as faults:
            for process in processes:
                fault = self._fault(process)
                self.reports.append(f"{fault.__name__} {process.name}")
                faults.enter_context(fault(process))
            broken = {process.name for process in processes}
            for path, (shard, cluster) in self.places.items():
                if shard not in broken:
                    self._write(path, shard, cluster)
        self._check()

    def _fault(self, process: SiteProcess) -> Fault:
        faults: list[Fault] = [down, frozen, wiped] if process is self.site.nats else [down, frozen]
        return self._dice.choice(faults)

    def _write(self, path: str, shard: str, cluster: str) -> None:
        """Write objects, and a child whose rows are replicated; sometimes delete one."""
        api = self.site.shards[shard].api(cluster)
        with contextlib.closing(api):
            for _ in range(self._dice.randint(1, 8)):
                self._number += 1
                name = f"m{self._number}"
                api.post(MAPS, configmap(name, {"n": str(self._number)}))
                self._written[path, name] = str(self._number)
            self._delete_some(api, path)
            child = workspace(api, name=f"c{self._number}", selector={"name": shard})
            ready(api, child)
            if self._dice.random() < 0.5:
                api.delete(f"{WORKSPACES}/{child}")
                gone(api, child)

    def _delete_some(self, api: Api, path: str) -> None:
        """Delete some of the written objects, old and new."""
        standing = [name for at, name in self._written if at == path]
        for name in self._dice.sample(standing, len(standing) // 4):
            api.delete(f"{MAPS}/{name}")
            del self._written[path, name]
            self._deleted.add((path, name))

    def _check(self) -> None:
        """Check that all shards converge, and that acknowledged writes are present."""
        converged(self.site)
        for path in self.places:
            served(self.site, path)
            api = self.site.proxy.api(path)
            with contextlib.closing(api):
                items = eventually(partial(lambda api: api.get(MAPS).json["items"], api))
            found = {item["metadata"]["name"]: (item.get("data") or {}).get("n") for item in items}
            wanted = {name: number for (at, name), number in self._written.items() if at == path}
            assert wanted.items() <= found.items()
            risen = [name for at, name in self._deleted if at == path and name in found]
            assert not risen, "what was deleted stays so"


def campaign(directory: Path, seed: int, rounds: int) -> None:
    with Site(directory, shards=3) as site:
        made = Campaign(site, seed)
        try:
            for _ in range(rounds):
                made.round()
        except BaseException as failure:
            failure.add_note(f"{'; '.join(made.reports)}\nrun again: {replay_command(seed, _THIS)}")
            raise


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_site_survives_many_faults_two_at_a_time(tmp_path: Path) -> None:
    campaign(tmp_path, seed_of_run(7), ROUNDS)
