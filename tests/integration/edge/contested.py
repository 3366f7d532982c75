"""The rules for one object that two workspaces give and that is edited in its mailbox and at the edge: a model of them.

Of what both workspaces give the last change counts; in a mailbox what a workspace gives is put back, and what nobody
gives stays; at an edge too, unless the object is not to be overwritten. What a workspace gave and gives no more goes.
What somebody deleted in the mailbox or at the edge is made anew of what is given. Where two changes of a round cross
the model allows both outcomes; of a key that one of them touched alone it allows one.
"""

from __future__ import annotations

from collections import defaultdict

WORKSPACES = ("first", "second")
#: Place -> the keys that it may edit. `both` is given by both workspaces.
KEYS = {
    "first": ("both", "a"),
    "second": ("both", "b"),
    "mailbox": ("both", "a", "b", "of-mailbox"),
    "edge": ("both", "a", "b", "of-mailbox", "of-edge"),
}
Data = dict[str, str]


class Model:
    """What the places should have. The rule about overwriting is what the first workspace gives."""

    def __init__(self) -> None:
        self.given: dict[str, Data] = {"first": {}, "second": {}}
        self.last = "second"
        #: What somebody wrote in the mailbox, and what the edge has.
        self.mailbox: Data = {}
        self.edge: Data = {}
        self.is_overwritten = True
        #: Keys of the edge that are the syncer's, and those of which nobody can tell.
        self.owned, self.unsure = set[str](), set[str]()
        self.begin()

    def begin(self) -> None:
        """A round begins."""
        self._rules = {self.is_overwritten}
        #: Values that a key may have had during the round, in the mailbox by its hand, and at the edge.
        self._by_hand = defaultdict[str, set[str]](set)
        self.possible = defaultdict[str, set[str]](set)
        #: Keys that were wanted, and that were edited at the edge, at some moment of the round.
        self._ever, self._edited = set[str](), set[str]()
        #: Keys that a workspace gave at some moment of the round.
        self._was_given = set[str]()
        #: Keys of the syncer's that were not wanted at some moment of the round.
        self._lapsed = set[str]()
        self._was_deleted = False
        for key, value in self.edge.items():
            self.possible[key].add(value)
        self._note()

    def edit(self, place: str, key: str, value: str) -> None:
        """A place has another value."""
        self.possible[key].add(value)
        if place in self.given:
            self.given[place][key], self.last = value, place
        elif place == "mailbox":
            self.mailbox[key] = value
            self._by_hand[key].add(value)
        else:
            self.edge[key] = value
            self._edited.add(key)
        self._note()

    def delete(self, place: str) -> None:
        """A place has the object no more: a workspace whose object the other one gives too, the mailbox or the edge."""
        if place in self.given:
            self.given[place] = {}
            self.last = next(each for each in WORKSPACES if each != place)
            if place == "first":
                self.turn(is_overwritten=True)
        elif place == "mailbox":
            self.mailbox = {}
            self._by_hand.clear()
        else:
            self.edge, self.owned, self._was_deleted = {}, set(), True
            self.unsure, self._edited = set(), set()
        self._note()

    def turn(self, *, is_overwritten: bool) -> None:
        """The rule becomes that."""
        self.is_overwritten = is_overwritten
        self._rules.add(is_overwritten)

    def wanted(self) -> Data:
        """What the mailbox should have, if nothing crosses."""
        rest = next(each for each in WORKSPACES if each != self.last)
        return {**self.mailbox, **self.given[rest], **self.given[self.last]}

    def merged(self, found: Data) -> bool:
        """Whether the mailbox may have this."""
        # What was put back in time has gone with what was given.
        crossed = self.mailbox.keys() & self._was_given - self._given()
        sure = {key: value for key, value in self.wanted().items() if key not in crossed}
        return _fits(found, sure, {key: self._by_hand[key] | {self.mailbox[key]} for key in crossed})

    def _given(self) -> set[str]:
        return {*self.given["first"], *self.given["second"]}

    def allows(self, mailbox: Data, found: Data) -> bool:
        """Whether the edge may have this, beside that in the mailbox."""
        if self.is_overwritten:
            return self._overwritten(mailbox, found)
        if len(self._rules) == 1 and not self._was_deleted:
            return found == self.edge
        # The last state that was applied before the rule was known, and what was edited there since.
        gone = self._lapsed | (self.owned | self._ever) - mailbox.keys()
        is_kept = self.edge.keys() - gone <= found.keys()
        return is_kept and all(value in self.possible[key] for key, value in found.items())

    def _overwritten(self, mailbox: Data, found: Data) -> bool:
        taken = self._edited & (self.owned | self._ever) | self._ever & self.edge.keys() - self.owned
        crossed = (self.unsure | taken) - mailbox.keys()
        stays = {k: v for k, v in self.edge.items() if k not in self.owned | self._ever | crossed}
        return _fits(found, {**stays, **mailbox}, {key: self.possible[key] for key in crossed})

    def rest(self, mailbox: Data, found: Data) -> None:
        """The round ended so, as the rules allow."""
        given = self._given()
        self.mailbox = {key: value for key, value in mailbox.items() if key not in given}
        if self.is_overwritten:
            self.owned, self.unsure = set(mailbox), set()
        elif len(self._rules) == 1 and not self._was_deleted:
            self.owned -= self._edited
        else:
            self.unsure |= set(found)
        self.edge = found

    def _note(self) -> None:
        """The other value of the workspace that counts now comes with it."""
        wanted = self.wanted()
        self._was_given |= self._given()
        self._ever |= wanted.keys()
        sure = self._given() | self.mailbox.keys() - self._was_given
        self._lapsed |= (self.owned | self.unsure | self._ever) - sure
        for key, value in wanted.items():
            self.possible[key].add(value)


def _fits(found: Data, sure: Data, maybe: dict[str, set[str]]) -> bool:
    """Whether all that is sure is there, and nothing else but what may be."""
    if any(found.get(key) != value for key, value in sure.items()):
        return False
    return all(key in sure or value in maybe.get(key, ()) for key, value in found.items())
