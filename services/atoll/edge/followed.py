"""Who follows what: clusters and identities, the subjects that select them, and who is told of an event.

`changes` keeps one for all shards, as a cluster may be on any. Invariant: whatever somebody follows is in the filters,
or the filters select everything and `wants` says so.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from atoll.machinery.stream.subjects import CHANGES, all_subjects, control_subject, escape, filters, unescape

#: With more than these, all of a stream is read and most of it passed by.
MAX_FILTERS = 32
_IDENTITY, _TOKENS = 3, 7

Follower = TypeVar("Follower")


class Followed(Generic[Follower]):
    """What each follower follows."""

    def __init__(self) -> None:
        self._sets: dict[Follower, tuple[frozenset[str], frozenset[str]]] = {}
        #: Followers by token of a subject.
        self._clusters: dict[str, set[Follower]] = {}
        self._identities: dict[str, set[Follower]] = {}

    def __bool__(self) -> bool:
        return bool(self._sets)

    @property
    def followers(self) -> Collection[Follower]:
        """All who follow anything, or did."""
        return self._sets.keys()

    def follow(self, follower: Follower, clusters: Collection[str], identities: Collection[str]) -> None:
        """Set all that somebody follows."""
        before = self._sets.get(follower, (frozenset(), frozenset()))
        after = frozenset(map(escape, clusters)), frozenset(map(escape, identities))
        for table, old, new in zip((self._clusters, self._identities), before, after, strict=True):
            for token in old - new:
                table[token].discard(follower)
                if not table[token]:
                    del table[token]
            for token in new - old:
                table.setdefault(token, set()).add(follower)
        self._sets[follower] = after

    def filters(self, shard: str) -> tuple[str, ...]:
        """The subjects of a shard's changes to read, those of RESYNC among them.

        A server refuses filters that overlap, as one of a cluster and one of an identity do: then all is read.
        """
        if (self._clusters and self._identities) or len(self._clusters) + len(self._identities) > MAX_FILTERS:
            return all_subjects(CHANGES, shard)
        found = [filters(CHANGES, shard, cluster=unescape(token))[0] for token in self._clusters]
        found += [filters(CHANGES, shard, identity=unescape(token))[0] for token in self._identities]
        return (*sorted(found), control_subject(CHANGES, shard))

    def wants(self, subject: str) -> bool:
        """Whether anybody follows what a subject is about, or it is about the stream."""
        tokens = subject.split(".")
        if len(tokens) != _TOKENS:
            return True
        return tokens[-1] in self._clusters or tokens[_IDENTITY] in self._identities

    def who(self, cluster: str, identity: str) -> set[Follower]:
        """Who follows an object of a cluster and an identity."""
        return self._clusters.get(escape(cluster), set()) | self._identities.get(escape(identity), set())
