"""A position in the tokens of an expression, with cel-go's syntax errors and recovery.

Base of the parser. Invariant: messages and recovery are those of cel-go's parser: one token is skipped or inserted if
that makes the text fit, otherwise parsing ends.
"""

from __future__ import annotations

from typing import Final

from atoll.machinery.cel.errors import Issue
from atoll.machinery.cel.syntax import lexer
from atoll.machinery.cel.syntax.ast import Place
from atoll.machinery.cel.syntax.lexer import Token

RELATIONS: Final = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_START: Final = (
    "{{'[', '{{', '(', {closing}'.', '-', '!', {question}'true', 'false', 'null', "
    "NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}}"
)
_STARTS: Final = frozenset(
    {"[", "{", "(", ".", "-", "!", "true", "false", "null", lexer.FLOAT, lexer.INT, lexer.UINT}
    | {lexer.STRING, lexer.BYTES, lexer.IDENTIFIER}
)
#: Tokens that may follow a complete operand; closing brackets only if one is open.
_CONTINUES: Final = RELATIONS | frozenset(("&&", "||", "[", ".", "-", "?", "+", "*", "/", "%"))


class ParseError(Exception):
    """Parsing cannot continue; the issue is at `offset`. An empty message means that the issue is recorded already."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


class Cursor:
    """The tokens of a text, the position in them, open brackets, and issues so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens, bad = lexer.tokens(text)
        self.place = Place(text)
        self.at = 0
        self.open: list[str] = []
        self.issues = [self.issue(offset, f"Syntax error: {message}") for offset, message in bad]

    def next(self) -> Token:
        """Return the current token and advance."""
        token = self.tokens[self.at]
        self.at += 1
        return token

    def expect(self, kind: str, expected: str = "") -> Token:
        """Return the expected token, recovering as cel-go does: skip a token, insert one, or raise ParseError.

        `expected` replaces the kind in messages where other tokens are possible as well.
        """
        token = self.tokens[self.at]
        if token.kind == kind:
            return self.next()
        shown = expected or f"'{kind}'"
        if token.kind != lexer.EOF and self.tokens[self.at + 1].kind == kind:
            self._report(token, f"extraneous input '{token.text}' expecting {shown}")
            self.at += 1
            return self.next()
        if not expected and self._may_follow(kind, token):
            self._report(token, f"missing {shown} at '{token.text}'")
            return token
        raise ParseError(token.offset, f"Syntax error: mismatched input '{token.text}' expecting {shown}")

    def _may_follow(self, kind: str, token: Token) -> bool:
        if kind == ":":
            return token.kind in _STARTS
        if token.kind == lexer.EOF:
            return not self.open
        return token.kind in _CONTINUES or (bool(self.open) and token.kind in (self.open[-1], ","))

    def expect_operand(self, closing: str = "", question: str = "") -> None:
        """Report an issue if no operand starts here; one token in front of an operand is skipped. Raises ParseError."""
        token = self.tokens[self.at]
        if token.kind in _STARTS:
            return
        expected = _START.format(closing=closing, question=question)
        follows = self.tokens[self.at + 1].kind if token.kind != lexer.EOF else lexer.EOF
        if follows in _STARTS or (closing and follows == ")"):
            self._report(token, f"extraneous input '{token.text}' expecting {expected}")
            self.at += 1
            if follows not in _STARTS:
                raise ParseError(-2, "")
            return
        raise ParseError(token.offset, f"Syntax error: mismatched input '{token.text}' expecting {expected}")

    def end(self) -> None:
        """Report an issue if the text continues."""
        token = self.tokens[self.at]
        if token.kind == lexer.EOF:
            return
        word = "extraneous" if self.tokens[self.at + 1].kind == lexer.EOF else "mismatched"
        self._report(token, f"{word} input '{token.text}' expecting <EOF>")

    def _report(self, token: Token, message: str) -> None:
        self.issues.append(self.issue(token.offset, f"Syntax error: {message}"))

    def fail_identifier(self, token: Token, optional: bool = False) -> None:
        """Raise ParseError for a missing name; `optional` if it follows `.?`."""
        if optional:
            message = f"mismatched input '{token.text}' expecting {{IDENTIFIER, ESC_IDENTIFIER}}"
        elif token.kind in ("true", "false", "null"):
            message = f"mismatched input '{token.text}' expecting IDENTIFIER"
        elif token.kind == lexer.EOF:
            message = "no viable alternative at input '.'"
        else:
            message = f"no viable alternative at input '.{token.text}'"
        raise ParseError(token.offset, f"Syntax error: {message}")

    def issue(self, offset: int, message: str) -> Issue:
        """Return an issue at an offset."""
        line, column = self.place.of(offset)
        # cel-go reports the end of an empty text one column before it.
        return Issue(line, column if self.text else -1, message)
