"""Functions of expressions by Kubernetes version, and functions of the rules of definitions."""

from __future__ import annotations

import pytest

from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.errors import CompileError
from atoll.machinery.cel.libraries.authorizer import AUTHORIZER
from atoll.machinery.cel.libraries.base import base_libraries, rule_libraries

#: An expression and the minor version that introduced its newest function.
BROUGHT = [
    ("[1].sum() == 1 && isURL('/') && 'a'.find('a') == 'a'", 0),
    ("quantity('1').isInteger()", 28),
    ("'a'.lowerAscii() == 'a' && sets.contains([1], [1])", 29),
    ("isIP('::1') && isCIDR('::/0')", 30),
    ("format.dns1123Label().validate('a').hasValue()", 31),
    ("[1].all(i, v, i < v)", 32),
    ("isSemver('1.0.0') && isSemver('v1', true)", 33),
    ("[1, 2].sort() == [1, 2]", 34),
    ("[1].includes(1)", 37),
]


@pytest.mark.parametrize(("text", "minor"), BROUGHT)
def test_a_function_exists_from_its_version_on(text: str, minor: int) -> None:
    assert Environment({}, base_libraries((1, minor))).compile(text)
    if minor:
        with pytest.raises(CompileError):
            Environment({}, base_libraries((1, minor - 1))).compile(text)


@pytest.mark.parametrize("text", [text for text, _ in BROUGHT])
def test_a_stored_rule_may_use_every_function(text: str) -> None:
    assert Environment({}, rule_libraries(None)).compile(text)


def test_a_new_rule_may_use_only_what_the_version_before_has() -> None:
    environment = Environment({}, rule_libraries())
    assert environment.compile("[1].sum() == 1")
    with pytest.raises(CompileError, match="undeclared reference to 'includes'"):
        environment.compile("[1].includes(1)")


def test_a_rule_of_a_definition_has_no_authorizer() -> None:
    text = "authorizer.path('/x').check('get').allowed()"
    assert Environment({"authorizer": AUTHORIZER}, base_libraries()).compile(text)
    with pytest.raises(CompileError) as caught:
        Environment({}, rule_libraries()).compile(text)
    assert [issue.message for issue in caught.value.issues] == [
        "undeclared reference to 'authorizer' (in container '')"
    ]


def test_types_of_addresses_have_names_and_other_types_have_none() -> None:
    environment = Environment({}, base_libraries())
    assert environment.compile("type(ip('::1')) == net.IP && type(cidr('::/0')) == net.CIDR").evaluate({}) is True
    with pytest.raises(CompileError):
        environment.compile("type(quantity('1')) == kubernetes.Quantity")
