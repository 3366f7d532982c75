"""A compiled rule of a definition: its programs, their static costs, and its errors.

`program` makes these, `evaluation` runs them, `definition` reports their errors. Invariant: a rule with a program
evaluates to a boolean, its message to a string; one with an error has no program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from atoll.machinery.meta.objects import Object

if TYPE_CHECKING:
    from atoll.machinery.cel.program import Program

#: The variables of rules: the part of the object, and the correlated part of the old object.
SELF, OLD_SELF = "self", "oldSelf"


class Expression(msgspec.Struct, frozen=True):
    """The compiled text or messageExpression of a rule.

    `cost` is the upper end of the static estimate of one evaluation. `error` is the reason for a missing program, in
    Kubernetes' words. `error_if_new` is the reason to reject the text in a new rule only: the compatibility version
    lacks a function that it calls.
    """

    program: Program | None
    cost: int = 0
    #: Whether its variables need deep conversion, because it compares values that contain sets.
    converts_whole: bool = False
    error: str = ""
    error_if_new: str = ""


class Rule(msgspec.Struct, frozen=True):
    """A compiled rule of x-kubernetes-validations. A rule without an expression is always valid."""

    entry: Object
    expression: Expression | None = None
    message: Expression | None = None
    uses_old: bool = False
    #: The field that failures are reported at, below the part of the rule; empty for the part itself.
    field: str = ""

    @property
    def optional_old(self) -> bool:
        """Whether oldSelf is an optional, so that the rule also runs without an old value."""
        return self.entry.get("optionalOldSelf") is True

    @property
    def label(self) -> str:
        """The rule in errors: its message, else its text."""
        return str(self.entry.get("message") or self.entry["rule"]).strip()

    @property
    def refusal(self) -> str:
        """The message of a failure without a message expression."""
        message = str(self.entry.get("message") or "")
        return message.strip() if message else f"failed rule: {self.label}"
