"""One rule of a definition, compiled: its programs, what they may cost, what is wrong with it.

`program` makes these, `judge` runs them, `definition` tells of their errors. Invariant: a rule with a program evaluates
to a boolean, its message to a string; one with an error has no program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from atoll.machinery.meta.objects import Object

if TYPE_CHECKING:
    from atoll.machinery.cel.program import Program

#: The variables of rules: the part of the object they stand at, and what it was before.
SELF, OLD_SELF = "self", "oldSelf"


class Expression(msgspec.Struct, frozen=True):
    """A rule's text, or its messageExpression, compiled.

    `cost` is the most that one evaluation may cost by the static estimate. `error` says in Kubernetes' words why there
    is no program. `error_if_new` says why the text may only stay where it is stored already: an older server, back to
    which one may have to go, does not know what it calls.
    """

    program: Program | None
    cost: int = 0
    #: Whether its variables have to be converted down to the last leaf, for it compares what holds sets.
    converts_whole: bool = False
    error: str = ""
    error_if_new: str = ""


class Rule(msgspec.Struct, frozen=True):
    """A rule of x-kubernetes-validations, compiled. An empty rule holds nothing."""

    entry: Object
    expression: Expression | None = None
    message: Expression | None = None
    uses_old: bool = False
    #: The field that the rule blames, below its own; empty for its own.
    field: str = ""

    @property
    def optional_old(self) -> bool:
        """Whether oldSelf is an optional, so that the rule also runs where there is no old value."""
        return self.entry.get("optionalOldSelf") is True

    @property
    def shown(self) -> str:
        """The rule as errors name it: by its message, else its text."""
        return str(self.entry.get("message") or self.entry["rule"]).strip()

    @property
    def refusal(self) -> str:
        """What a failure says unless a message expression says it."""
        message = str(self.entry.get("message") or "")
        return message.strip() if message else f"failed rule: {self.shown}"
