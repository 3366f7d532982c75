"""Values, messages and costs of `regex`; each row is the result of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.cel.errors import EvaluationError, ProgramError
from harness.oracles.cel_expressions import Expected, check_error, check_value, compile_expression

#: Expression, value, run-time cost, estimate.
VALUES: list[tuple[str, Any, int, Expected]] = [
    ("'abc 123'.find('[0-9]+')", "123", 2, (2, 2)),
    ("'abc 123'.find('[0-9]*')", "", 2, (2, 2)),
    ("'abc 123'.find('xyz')", "", 1, (1, 1)),
    ("'日本語'.find('本.')", "本語", 1, (1, 1)),
    ("'aXb'.find('(?i)x')", "X", 2, (2, 2)),
    ("''.find('^$')", "", 1, (1, 1)),
    ("'123 abc 456'.findAll('[0-9]+')", ["123", "456"], 4, (4, 4)),
    ("'123 abc 456'.findAll('[0-9]*')", ["123", "", "", "", "", "456"], 4, (4, 4)),
    ("'123 abc 456'.findAll('[0-9]+', 1)", ["123"], 4, (4, 4)),
    ("'123 abc 456'.findAll('[0-9]+', 0)", [], 4, (4, 4)),
    ("'123 abc 456'.findAll('[0-9]+', -1)", ["123", "456"], 4, (4, 4)),
    ("'123 abc 456'.findAll('xyz')", [], 2, (2, 2)),
    ("'日本'.findAll('')", ["", "", ""], 0, (0, 0)),
    ("'日本'.findAll('x*')", ["", "", ""], 1, (1, 1)),
    ("'abab'.findAll('ab|b')", ["ab", "ab"], 1, (1, 1)),
]

#: Expression, message, run-time cost, estimate.
ERRORS: list[tuple[str, str, int, Expected]] = [
    ("'a'.find('(' + '')", "Illegal regex: error parsing regexp: missing closing ): `(`", 2, (2, 2)),
    (
        "'a'.find('a**' + '')",
        "Illegal regex: error parsing regexp: invalid nested repetition operator: `**`",
        2,
        (2, 2),
    ),
    ("'a'.findAll('[' + '')", "Illegal regex: error parsing regexp: missing closing ]: `[`", 2, (2, 2)),
    ("'a'.findAll('\\\\C' + '')", "Illegal regex: error parsing regexp: invalid escape sequence: `\\C`", 2, (2, 2)),
    ("dyn(1).find('a' + '')", "no such overload: find(int, string)", 2, (3, 3)),
]


@pytest.mark.parametrize(("expression", "value", "cost", "estimate"), VALUES)
def test_an_expression_has_kubernetes_value_cost_and_estimate(
    expression: str, value: Any, cost: int, estimate: Expected
) -> None:
    check_value(expression, value, cost, estimate)


@pytest.mark.parametrize(("expression", "message", "cost", "estimate"), ERRORS)
def test_an_expression_fails_with_kubernetes_message_cost_and_estimate(
    expression: str, message: str, cost: int, estimate: Expected
) -> None:
    check_error(expression, message, cost, estimate)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'a'.find('(')", "error parsing regexp: missing closing ): `(`"),
        ("'a'.findAll('[a')", "error parsing regexp: missing closing ]: `[a`"),
        ("'a'.findAll('a**', 1)", "error parsing regexp: invalid nested repetition operator: `**`"),
        ("'a'.find('\\\\')", "error parsing regexp: trailing backslash at end of expression: ``"),
        ("'a'.find('(?!a)')", "error parsing regexp: invalid or unsupported Perl syntax: `(?!`"),
    ],
)
def test_a_bad_pattern_that_is_written_out_fails_the_program(expression: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        compile_expression(expression)
    assert str(caught.value) == message


def test_a_pattern_that_is_no_text_fails_the_evaluation_alone() -> None:
    program = compile_expression("'a'.find(dyn(1))")
    with pytest.raises(EvaluationError, match="no such overload"):
        program.evaluate({})
