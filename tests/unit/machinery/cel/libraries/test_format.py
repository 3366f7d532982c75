"""Values, messages and costs of `format`; each row is the result of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.cel.values import NONE, Optional_
from harness.oracles.cel_expressions import Expected, check_error, check_value

#: Expression, value, run-time cost, estimate.
VALUES: list[tuple[str, Any, int, Expected]] = [
    ("format.dns1123Label().validate('my-label')", NONE, 9, (33, 33)),
    (
        "format.dns1123Label().validate('My_Label')",
        Optional_(
            [
                (
                    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
                    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex us"
                    "ed for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                )
            ]
        ),
        9,
        (33, 33),
    ),
    ("format.dns1123Label().validate('a.b')", Optional_(["must not contain dots"]), 9, (33, 33)),
    (
        ("format.dns1123Label().validate('aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg')"),
        Optional_(["must be no more than 63 characters"]),
        57,
        (225, 225),
    ),
    ("format.dns1123Subdomain().validate('apiextensions.k8s.io')", NONE, 46, (65, 65)),
    (
        "format.dns1123Subdomain().validate('a..b')",
        Optional_(
            [
                (
                    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
                    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
                    " for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                )
            ]
        ),
        16,
        (33, 33),
    ),
    ("format.dns1035Label().validate('my-label')", NONE, 9, (33, 33)),
    (
        "format.dns1035Label().validate('1abc')",
        Optional_(
            [
                (
                    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
                    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123"
                    "', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                )
            ]
        ),
        9,
        (33, 33),
    ),
    ("format.qualifiedName().validate('apiextensions.k8s.io/v1beta1')", NONE, 46, (97, 97)),
    (
        "format.qualifiedName().validate('a/b/c')",
        Optional_(
            [
                (
                    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start"
                    " and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', rege"
                    "x used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS "
                    "subdomain prefix and '/' (e.g. 'example.com/MyName')"
                )
            ]
        ),
        16,
        (33, 33),
    ),
    ("format.qualifiedName().validate('/name')", Optional_(["prefix part must be non-empty"]), 16, (33, 33)),
    (
        "format.qualifiedName().validate('Bad_/')",
        Optional_(
            [
                (
                    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric charact"
                    "ers, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com'"
                    ", regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9"
                    "])?)*')"
                ),
                "name part must be non-empty",
                (
                    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
                    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used f"
                    "or validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                ),
            ]
        ),
        16,
        (33, 33),
    ),
    ("format.dns1123LabelPrefix().validate('my-label-prefix-')", NONE, 17, (65, 65)),
    (
        "format.dns1123LabelPrefix().validate('-')",
        Optional_(
            [
                (
                    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
                    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex us"
                    "ed for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                )
            ]
        ),
        9,
        (33, 33),
    ),
    ("format.dns1123LabelPrefix().validate('my--')", NONE, 9, (33, 33)),
    ("format.dns1123SubdomainPrefix().validate('mysubdomain.prefix-')", NONE, 31, (65, 65)),
    ("format.dns1123SubdomainPrefix().validate('a.-')", NONE, 16, (33, 33)),
    ("format.dns1035LabelPrefix().validate('my-label-prefix-')", NONE, 17, (65, 65)),
    ("format.labelValue().validate('')", NONE, 11, (1, 1)),
    ("format.labelValue().validate('my_value')", NONE, 11, (33, 33)),
    (
        "format.labelValue().validate('_x')",
        Optional_(
            [
                (
                    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '"
                    ".', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',"
                    "  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                )
            ]
        ),
        11,
        (33, 33),
    ),
    ("format.uri().validate('http://example.com')", NONE, 553, (65, 65)),
    (
        "format.uri().validate('../relative-path')",
        Optional_(['parse "../relative-path": invalid URI for request']),
        553,
        (65, 65),
    ),
    ("format.uuid().validate('123e4567-E89B-12d3-a456-426614174000')", NONE, 73, (129, 129)),
    ("format.uuid().validate('123')", Optional_(["does not match the UUID format"]), 19, (33, 33)),
    ("format.byte().validate('aGVsbG8=')", NONE, 22, (33, 33)),
    ("format.byte().validate('aGVsbG8')", Optional_(["invalid base64"]), 22, (33, 33)),
    ("format.byte().validate('')", Optional_(["invalid base64"]), 22, (1, 1)),
    ("format.date().validate('2024-02-29')", NONE, 37, (33, 33)),
    ("format.date().validate('2023-02-29')", Optional_(["invalid date"]), 37, (33, 33)),
    ("format.date().validate('0000-02-29')", NONE, 37, (33, 33)),
    ("format.datetime().validate('2021-01-01T00:00:00Z')", NONE, 55, (65, 65)),
    ("format.datetime().validate('2021-01-01t00:00:00.5+01:00')", NONE, 55, (97, 97)),
    ("format.datetime().validate('2021-01-01 00:00:00Z')", Optional_(["invalid datetime"]), 55, (65, 65)),
    ("format.datetime().validate('2021-01-01T24:00:00Z')", Optional_(["invalid datetime"]), 55, (65, 65)),
    ("format.named('dns1123Label').hasValue()", True, 2, (2, 2)),
    ("format.named('nothing').hasValue()", False, 2, (2, 2)),
    ("format.named('uri').value().validate('x').value()", ['parse "x": invalid URI for request'], 279, (35, 35)),
    ("format.dns1123Label().validate('a').hasValue()", False, 10, (34, 34)),
    ("format.dns1123Label() == format.named('dns1123Label').value()", True, 4, (4, 10)),
    ("format.dns1123Label() == format.dns1035Label()", False, 3, (3, 9)),
]

#: Expression, message, run-time cost, estimate.
ERRORS: list[tuple[str, str, int, Expected]] = [
    ("format.named('nothing').value()", "optional.none() dereference", 2, (2, 2))
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
