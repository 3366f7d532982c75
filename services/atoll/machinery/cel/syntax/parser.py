"""Tokens to a tree, by precedence, with macros expanded.

Called by the environment; the checker reads the tree. Invariants: nesting and every chain of operators are bounded as
in cel-go (250), the text by 100,000 code points; && and || become balanced trees, so a long chain of them is not deep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from atoll.machinery.cel.errors import CompileError, Issue
from atoll.machinery.cel.syntax import lexer
from atoll.machinery.cel.syntax.ast import Call, Entry, Expr, Ident, ListExpr, Literal, MapExpr, Select, StructExpr
from atoll.machinery.cel.syntax.cursor import RELATIONS, Cursor, ParseError
from atoll.machinery.cel.syntax.expansion import Expander, Macro, MacroError
from atoll.machinery.cel.syntax.lexer import Token
from atoll.machinery.cel.syntax.literals import READERS

MAX_DEPTH: Final = 250
MAX_SIZE: Final = 100_000

#: Words that are no identifiers.
RESERVED: Final = frozenset(
    {"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"}
    | {"package", "namespace", "null", "return", "true", "var", "void", "while"}
)
_BINARY: Final = {
    "<": "_<_",
    "<=": "_<=_",
    ">": "_>_",
    ">=": "_>=_",
    "==": "_==_",
    "!=": "_!=_",
    "in": "@in",
    "+": "_+_",
    "-": "_-_",
    "*": "_*_",
    "/": "_/_",
    "%": "_%_",
}


def parse(text: str, macros: Mapping[tuple[str, int, bool], Macro]) -> Expr:
    """Return the tree of an expression. `macros` are keyed by name, number of arguments (-1: any) and member call.

    Raises CompileError with all syntax errors up to the point where recovery fails.
    """
    if len(text) > MAX_SIZE:
        message = f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_SIZE}"
        raise CompileError([Issue(-1, -1, message)], text)
    return _Parser(text, macros).run()


class _Parser(Cursor):
    def __init__(self, text: str, macros: Mapping[tuple[str, int, bool], Macro]) -> None:
        super().__init__(text)
        self.macros = macros
        self.expander = Expander()
        self.depth = 0

    def run(self) -> Expr:
        try:
            tree = self._expr()
            self.end()
        except ParseError as error:
            if error.message:
                self.issues.append(self.issue(error.offset, error.message))
        if self.issues:
            raise CompileError(self.issues, self.text)
        return tree

    # --- precedence

    def _expr(self) -> Expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ParseError(-1, f"expression recursion limit exceeded: {MAX_DEPTH}")
        result = self._logical("||", "_||_")
        if self.tokens[self.at].kind == "?":
            token = self.next()
            if_true = self._logical("||", "_||_")
            self.expect(":")
            if_false = self._expr()
            result = self._call(token.offset, "_?_:_", [result, if_true, if_false])
        self.depth -= 1
        return result

    def _logical(self, symbol: str, function: str) -> Expr:
        terms, operators = [self._term(symbol)], []
        while self.tokens[self.at].kind == symbol:
            operators.append(self.next().offset)
            terms.append(self._term(symbol))
        if not operators:
            return terms[0]
        return self._balanced(function, terms, operators, 0, len(operators) - 1)

    def _term(self, symbol: str) -> Expr:
        return self._logical("&&", "_&&_") if symbol == "||" else self._relation()

    def _balanced(self, function: str, terms: list[Expr], operators: list[int], low: int, high: int) -> Expr:
        middle = (low + high + 1) // 2
        left = terms[middle] if middle == low else self._balanced(function, terms, operators, low, middle - 1)
        right = terms[middle + 1] if middle == high else self._balanced(function, terms, operators, middle + 1, high)
        return Call(self.expander.id(), operators[middle], function, [left, right])

    def _relation(self) -> Expr:
        left, chain = self._sum(), 0
        while self.tokens[self.at].kind in RELATIONS:
            token = self.next()
            chain = self._extend_chain(chain)
            left = self._call(token.offset, _BINARY[token.kind], [left, self._sum()])
        return left

    def _sum(self) -> Expr:
        left, chain = self._product(), 0
        while self.tokens[self.at].kind in ("+", "-"):
            token = self.next()
            chain = self._extend_chain(chain)
            left = self._call(token.offset, _BINARY[token.kind], [left, self._product()])
        return left

    def _product(self) -> Expr:
        left, chain = self._unary(), 0
        while self.tokens[self.at].kind in ("*", "/", "%"):
            token = self.next()
            chain = self._extend_chain(chain)
            left = self._call(token.offset, _BINARY[token.kind], [left, self._unary()])
        return left

    def _extend_chain(self, chain: int) -> int:
        if chain + 2 > MAX_DEPTH:
            raise ParseError(-1, f"expression recursion limit exceeded: {MAX_DEPTH}")
        return chain + 1

    def _unary(self) -> Expr:
        token = self.tokens[self.at]
        if token.kind not in ("!", "-"):
            return self._member()
        if token.kind == "-" and self.tokens[self.at + 1].kind in (lexer.INT, lexer.FLOAT):
            return self._member()
        count = 0
        while self.tokens[self.at].kind == token.kind:
            self.at += 1
            count += 1
        operand = self._member()
        if count % 2 == 0:
            return operand
        return self._call(token.offset, "!_" if token.kind == "!" else "-_", [operand])

    # --- members

    def _member(self) -> Expr:
        result, chain = self._primary(), 0
        while True:
            token = self.tokens[self.at]
            if token.kind == ".":
                result = self._select(result)
            elif token.kind == "[":
                result = self._index(result)
            else:
                return result
            chain = self._extend_chain(chain)

    def _select(self, operand: Expr) -> Expr:
        dot = self.next()
        optional = self._accept("?")
        token = self.tokens[self.at]
        if token.kind not in (lexer.IDENTIFIER, lexer.ESC_IDENTIFIER):
            self.fail_identifier(token, optional)
        self.at += 1
        if token.kind == lexer.ESC_IDENTIFIER:
            # Kubernetes does not enable this syntax.
            self.issues.append(self.issue(token.offset, "unsupported syntax: '`'"))
        if optional:
            field = Literal(self.expander.id(), token.offset, token.text)
            return Call(self.expander.id(), dot.offset, "_?._", [operand, field])
        if self.tokens[self.at].kind != "(":
            return Select(self.expander.id(), dot.offset, operand, token.text)
        opened = self.next()
        return self._call(opened.offset, token.text, self._arguments(), operand)

    def _index(self, operand: Expr) -> Expr:
        bracket = self.next()
        function = "_[_]"
        if self._accept("?"):
            function = "_[?_]"
        else:
            self.expect_operand(question="'?', ")
        index = self._nested("]")
        self.expect("]")
        return self._call(bracket.offset, function, [operand, index])

    def _arguments(self) -> list[Expr]:
        arguments: list[Expr] = []
        if self._accept(")"):
            return arguments
        self.expect_operand(closing="')', ")
        arguments.append(self._nested(")"))
        while self._accept(","):
            arguments.append(self._nested(")"))
        self.expect(")")
        return arguments

    def _nested(self, closing: str) -> Expr:
        """Parse an expression inside brackets."""
        self.open.append(closing)
        result = self._expr()
        self.open.pop()
        return result

    # --- primaries

    def _primary(self) -> Expr:
        token = self.tokens[self.at]
        if token.kind in (lexer.IDENTIFIER, "."):
            return self._name(token)
        if token.kind == "(":
            self.at += 1
            result = self._nested(")")
            self.expect(")")
            return result
        if token.kind == "[":
            return self._list(token)
        if token.kind == "{":
            self.at += 1
            return MapExpr(self.expander.id(), token.offset, self._entries())
        return self._literal(token)

    def _name(self, token: Token) -> Expr:
        struct = self._struct_name()
        if struct is not None:
            return struct
        prefix = ""
        if token.kind == ".":
            prefix = "."
            self.at += 1
        name = self.tokens[self.at]
        if name.kind != lexer.IDENTIFIER:
            self.fail_identifier(name)
        self.at += 1
        if name.text in RESERVED:
            self.issues.append(self.issue(token.offset, f"reserved identifier: {name.text}"))
        if self.tokens[self.at].kind == "(":
            opened = self.next()
            return self._call(opened.offset, prefix + name.text, self._arguments())
        return Ident(self.expander.id(), name.offset, prefix + name.text)

    def _struct_name(self) -> Expr | None:
        """Parse `a.b.C{...}`, or return None if the names are not followed by a brace."""
        at = self.at
        name = ""
        if self.tokens[at].kind == ".":
            name, at = ".", at + 1
        while self.tokens[at].kind == lexer.IDENTIFIER:
            name += self.tokens[at].text
            at += 1
            if self.tokens[at].kind == "{":
                offset = self.tokens[at].offset
                self.at = at + 1
                return StructExpr(self.expander.id(), offset, name, self._fields())
            if self.tokens[at].kind != ".":
                return None
            name, at = name + ".", at + 1
        return None

    def _list(self, token: Token) -> Expr:
        self.at += 1
        items: list[Expr] = []
        optional = set()
        while not self._closes("]", bool(items)):
            if self._accept("?"):
                optional.add(len(items))
            items.append(self._nested("]"))
            if not self._accept(","):
                break
        self.expect("]", "{']', ','}")
        return ListExpr(self.expander.id(), token.offset, items, frozenset(optional))

    def _entries(self) -> list[Entry]:
        entries: list[Entry] = []
        while not self._closes("}", bool(entries)):
            optional = self._accept("?")
            key = self._expr()
            colon = self.expect(":")
            entries.append(Entry(self.expander.id(), colon.offset, key, self._nested("}"), optional))
            if not self._accept(","):
                break
        self.expect("}", "{'}', ','}")
        return entries

    def _fields(self) -> list[Entry]:
        entries: list[Entry] = []
        while not self._closes("}", bool(entries)):
            optional = self._accept("?")
            name = self.tokens[self.at]
            if name.kind not in (lexer.IDENTIFIER, lexer.ESC_IDENTIFIER):
                self.fail_identifier(name)
            self.at += 1
            colon = self.expect(":")
            value = self._nested("}")
            entries.append(Entry(self.expander.id(), colon.offset, None, value, optional, name.text.strip("`")))
            if not self._accept(","):
                break
        self.expect("}", "{'}', ','}")
        return entries

    def _closes(self, closing: str, started: bool) -> bool:
        """Report whether the bracket closes here; a single comma before it is allowed."""
        token = self.tokens[self.at]
        if token.kind == "," and not started and self.tokens[self.at + 1].kind == closing:
            self.at += 1
            return True
        return token.kind == closing

    def _accept(self, kind: str) -> bool:
        """Consume the token if it is of this kind."""
        if self.tokens[self.at].kind != kind:
            return False
        self.at += 1
        return True

    def _literal(self, token: Token) -> Expr:
        sign = ""
        start = token.offset
        if token.kind == "-" and self.tokens[self.at + 1].kind in (lexer.INT, lexer.FLOAT):
            self.at += 1
            sign, token = "-", self.tokens[self.at]
        reader = READERS.get(token.kind)
        if reader is None:
            self.expect_operand()
            return self._unary()
        self.at += 1
        try:
            return Literal(self.expander.id(), start, reader(sign + token.text))
        except ValueError as error:
            self.issues.append(self.issue(start, str(error)))
            return Literal(self.expander.id(), start, None)

    # --- helpers

    def _call(self, offset: int, function: str, arguments: list[Expr], target: Expr | None = None) -> Expr:
        member = target is not None
        macro = self.macros.get((function, len(arguments), member)) or self.macros.get((function, -1, member))
        if macro is not None:
            self.expander.offset = offset
            try:
                expanded: Expr | None = macro.expand(self.expander, target, arguments)
            except MacroError as error:
                self.issues.append(self.issue(error.offset, error.message))
                return Literal(self.expander.id(), offset, None)
            if expanded is not None:
                return expanded
        return Call(self.expander.id(), offset, function, arguments, target)
