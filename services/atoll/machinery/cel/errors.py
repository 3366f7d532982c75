"""Errors of an expression: a list of issues at compile time, one error at run time.

Every part of this package raises them; callers of the package catch them. Invariant: messages are those of cel-go,
because Kubernetes sends them to its clients verbatim.
"""

from __future__ import annotations

from dataclasses import dataclass

_SNIPPET_LIMIT = 16384
_ISSUE_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Issue:
    """One problem in the source text.

    Lines count from 1, columns from 0 in code points; -1, -1 if the issue has no position.
    """

    line: int
    column: int
    message: str

    def show(self, text: str, description: str = "<input>") -> str:
        """Return the issue as cel-go prints it: position, message, the source line and a caret below the column."""
        head = f"ERROR: {description}:{self.line}:{self.column + 1}: {self.message}"
        lines = text.split("\n")
        if not text or not 0 < self.line <= len(lines) or len(lines[self.line - 1].encode()) > _SNIPPET_LIMIT:
            return head
        source = lines[self.line - 1].replace("\t", " ")
        dots = "".join("\uff0e" if ord(c) > 0x7F else "." for c in source[: self.column])
        at = source[self.column : self.column + 1]
        caret = "\uff3e" if at and ord(at) > 0x7F else "^"
        return f"{head}\n | {source}\n | {dots}{caret}"


class CompileError(Exception):
    """The text does not parse or does not type-check. `str()` is all issues, ordered by position."""

    def __init__(self, issues: list[Issue], text: str, description: str = "<input>") -> None:
        self.issues = sorted(issues, key=lambda issue: (issue.line, issue.column))
        shown = [issue.show(text, description) for issue in self.issues[:_ISSUE_LIMIT]]
        if len(issues) > _ISSUE_LIMIT:
            shown.append(f"{len(issues) - _ISSUE_LIMIT} more errors were truncated")
        super().__init__("\n".join(shown))


class ProgramError(CompileError):
    """The text type-checks, but a literal in it does not convert (`int('x')`). Has no issues with a position."""

    def __init__(self, message: str) -> None:
        super().__init__([], "")
        self.args = (message,)


class EvaluationError(Exception):
    """The expression has no value for these bindings; `str()` is cel-go's message."""


class NoSuchOverload(EvaluationError):
    """A function has no overload for its arguments; only reachable through dyn."""

    def __init__(self, message: str = "no such overload") -> None:
        super().__init__(message)


class NoSuchKey(EvaluationError):
    """A map or an object lacks the key; optional selection turns it into `optional.none()`."""

    def __init__(self, key: object) -> None:
        super().__init__(f"no such key: {key}")


class BudgetExceeded(Exception):
    """The run-time cost exceeds the limit; the text is cel-go's."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")
