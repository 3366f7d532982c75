"""The second round of mutating admission: what acted before a later change acts once more, where it asks for that.

Mutating policies and mutating webhooks each keep a `Reinvocation` for one request, as Kubernetes' plug-ins do. A round
goes through policies, then webhooks; a change in the first round makes a second one. Then only those act again that
were reinvocable (`reinvocationPolicy: IfNeeded`), acted in the first round, and before something else changed the
object. Nothing acts for the first time in the second round.
"""

from __future__ import annotations

from collections.abc import Hashable

from atoll.machinery.meta.objects import Object, fresh


class Rounds:
    """The rounds of one request."""

    def __init__(self) -> None:
        #: 0, and 1 in the second round.
        self.number = 0
        #: Whether there is to be a second round.
        self.is_needed = False
        self.policies, self.webhooks = Reinvocation(self), Reinvocation(self)


class Reinvocation:
    """The memory of one plug-in. Call `enter`, for each that matches `acts` and `done`, at the end `leave`."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._before: set[Hashable] = set()
        self._again: set[Hashable] = set()
        self._output: Object | None = None

    def enter(self, obj: Object | None) -> None:
        """Begin a round: what others changed since this plug-in's first one concerns all that acted in it."""
        if self._rounds.number and obj != self._output:
            self._require()

    def acts(self, key: Hashable) -> bool:
        """Whether one that matches acts in this round."""
        return not self._rounds.number or key in self._again

    def done(self, key: Hashable, *, changed: bool, reinvocable: bool) -> None:
        """Note that one acted. A change concerns the reinvocable ones before it, and makes a second round."""
        if changed:
            self._require()
            self._rounds.is_needed = True
        if reinvocable:
            self._before.add(key)

    def leave(self, obj: Object | None) -> None:
        """End a round with the object as it is now."""
        self._output = None if obj is None else fresh(obj)

    def _require(self) -> None:
        self._again |= self._before
        self._before = set()
