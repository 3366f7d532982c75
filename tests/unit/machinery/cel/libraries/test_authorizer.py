"""Authorization checks of expressions: the attributes that reach the hook, and the result of its decision."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.cel.errors import CompileError, EvaluationError
from atoll.machinery.cel.libraries.authorizer import (
    AUTHORIZER,
    RESOURCE_CHECK,
    AuthorizationAttributes,
    AuthorizationResult,
    Authorizer,
    ResourceCheck,
)
from atoll.machinery.meta.user import User
from harness.oracles.cel_expressions import compile_expression

JANE = User("jane", ("team",))
YES = AuthorizationResult(True)


class Recorder:
    """A hook that records its requests and returns one result."""

    def __init__(self, answer: AuthorizationResult) -> None:
        self.answer = answer
        self.requests: list[AuthorizationAttributes] = []

    def __call__(self, attributes: AuthorizationAttributes, /) -> AuthorizationResult:
        self.requests.append(attributes)
        return self.answer


def evaluate(text: str, answer: AuthorizationResult = YES) -> tuple[Any, list[AuthorizationAttributes]]:
    hook = Recorder(answer)
    authorizer = Authorizer(JANE, hook)
    variables = {"authorizer": AUTHORIZER, "authorizer.requestResource": RESOURCE_CHECK}
    requested = ResourceCheck(authorizer, "apps", "deployments", namespace="prod", name="web")
    bindings = {"authorizer": authorizer, "authorizer.requestResource": requested}
    return compile_expression(text, variables).evaluate(bindings), hook.requests


def test_a_path_is_checked_with_the_verb_and_the_user() -> None:
    value, asked = evaluate("authorizer.path('/healthz').check('get').allowed()")
    assert value is True
    assert asked == [AuthorizationAttributes(user=JANE, verb="get", path="/healthz")]
    assert not asked[0].is_resource


def test_a_resource_is_checked_with_everything_that_was_set() -> None:
    text = (
        "authorizer.group('apps').resource('deployments').subresource('scale').namespace('prod').name('web')"
        ".fieldSelector('a=b').labelSelector('c').check('patch').allowed()"
    )
    _, asked = evaluate(text)
    assert asked == [
        AuthorizationAttributes(
            user=JANE,
            verb="patch",
            group="apps",
            resource="deployments",
            subresource="scale",
            namespace="prod",
            name="web",
            field_selector="a=b",
            label_selector="c",
        )
    ]
    assert asked[0].is_resource


def test_the_resource_of_the_request_can_be_checked() -> None:
    _, asked = evaluate("authorizer.requestResource.check('custom').allowed()")
    assert asked == [
        AuthorizationAttributes(
            user=JANE, verb="custom", group="apps", resource="deployments", namespace="prod", name="web"
        )
    ]


def test_a_service_account_is_checked_with_its_groups() -> None:
    _, asked = evaluate("authorizer.serviceAccount('prod', 'robot').path('/x').check('get').allowed()")
    groups = ("system:serviceaccounts", "system:serviceaccounts:prod")
    assert asked[0].user == User("system:serviceaccount:prod:robot", groups)


def test_setting_one_field_leaves_the_value_it_was_set_on_alone() -> None:
    text = (
        "[authorizer.group('').resource('pods')].all(pods, pods.name('a').check('get').allowed() "
        "&& pods.namespace('b').check('get').allowed())"
    )
    _, asked = evaluate(text)
    assert [(question.name, question.namespace) for question in asked] == [("a", ""), ("", "b")]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (AuthorizationResult(True, "because"), [True, "because", False, ""]),
        (AuthorizationResult(False), [False, "", False, ""]),
        (AuthorizationResult(False, "broken", "no answer"), [False, "broken", True, "no answer"]),
    ],
)
def test_a_decision_is_the_result_of_the_hook(answer: AuthorizationResult, expected: list[Any]) -> None:
    text = (
        "[authorizer.path('/x').check('get')].map(d, [dyn(d.allowed()), dyn(d.reason()), dyn(d.errored()), "
        "dyn(d.error())])[0]"
    )
    assert evaluate(text, answer)[0] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("authorizer.path(' ')", "path must not be empty"),
        ("authorizer.group('').resource('')", "resource must not be empty"),
        ("authorizer.serviceAccount('x', 'Not valid')", "Invalid service account name"),
        ("authorizer.serviceAccount('not.valid', 'x')", "Invalid service account namespace"),
        ("authorizer == authorizer", "no such overload"),
    ],
)
def test_an_invalid_check_is_an_error(text: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate(text)
    assert str(caught.value) == message


def test_a_path_has_no_resources() -> None:
    with pytest.raises(CompileError) as caught:
        evaluate("authorizer.path('/x').resource('pods')")
    assert "found no matching overload for 'resource'" in str(caught.value)
