"""What an import did: counts of each workspace, problems as they come, and the kinds of things that are not carried.

The steps call this. Invariant: the exit code is 0 only if everything that is carried is in the site.
"""

from __future__ import annotations

from collections import Counter

from atoll.cli.kubectl.plugin import Failure, say, warn

CREATED, CHANGED, SAME, CONFLICT, FAILED = "created", "changed", "same", "conflicts", "failed"
_ORDER = (CREATED, CHANGED, SAME, CONFLICT, FAILED)
NOT_CARRIED = """\
Not carried: uids and resource versions; objects that are being deleted; events, leases, certificate requests; tokens of
service accounts and of mounts; home workspaces; computed status (endpoints, conditions) of kinds of kcp and Kubernetes;
labels and shards of the source; objects of `root` that every site has by itself."""


class Report:
    """Counts and problems. In a dry run, what is counted as created or changed would be."""

    def __init__(self, *, dry_run: bool) -> None:
        self._dry_run = dry_run
        self._total: Counter[str] = Counter()
        self._here: Counter[str] = Counter()

    def count(self, what: str) -> None:
        """Count an object of the workspace at hand."""
        self._here[what] += 1

    def conflict(self, path: str, thing: str) -> None:
        """An object is in the site with other content, and stays."""
        self.count(CONFLICT)
        warn(f"{path}: {thing} is in the site with other content, and was left as it is; --overwrite replaces it")

    def failure(self, path: str, text: str) -> None:
        """Something could not be carried."""
        self.count(FAILED)
        warn(f"{path}: {text}")

    def end_of(self, path: str, stage: str) -> None:
        """Print the line of a workspace, if there was anything."""
        if self._here:
            say(f"{path}: {stage}: {_counts(self._here)}")
        self._total += self._here
        self._here.clear()

    def end(self) -> None:
        """Print the sums. Raises Failure if something is missing."""
        say(f"{'Would be: ' if self._dry_run else ''}{_counts(self._total) or 'nothing to carry'}.")
        say(NOT_CARRIED)
        if problems := self._total[CONFLICT] + self._total[FAILED]:
            raise Failure(f"{problems} of these are problems, named above; another run carries on with what is missing")


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{counter[what]} {what}" for what in _ORDER if counter[what])
