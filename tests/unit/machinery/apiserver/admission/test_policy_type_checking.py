"""Type checking of policies: warnings for expressions that do not fit the schema of a kind."""

from __future__ import annotations

from typing import Any

from atoll.machinery.apiserver.admission.policies.type_checking import MAX_KINDS, kinds_of, type_warnings
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.schema.structural.structural_schema import schema_for


def _custom(plural: str, **properties: Object) -> Kind:
    spec = {"type": "object", "properties": properties}
    schema = schema_for(encode_json({"type": "object", "properties": {"spec": spec}}))
    return Kind(
        group="example.com", version="v1", kind=plural.capitalize(), plural=plural, singular=plural, schema=schema
    )


_STRING = {"type": "string"}
WIDGETS = _custom("widgets", colour=_STRING, sizes={"type": "array", "items": {"type": "integer"}})
GADGETS = _custom("gadgets", shape=_STRING)
CATALOG = Catalog([*NATIVE, WIDGETS, GADGETS])


def _rule(*resources: str, group: str = "example.com", version: str = "v1") -> Object:
    return {"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": list(resources)}


def _warnings(*expressions: str, rules: list[Object] | None = None, **spec: Any) -> list[Object]:
    constraints = {"resourceRules": [_rule("widgets")] if rules is None else rules}
    validations = [{"expression": each} for each in expressions]
    return type_warnings({"matchConstraints": constraints, "validations": validations, **spec}, CATALOG, lambda: None)


def test_expressions_that_fit_have_no_warnings() -> None:
    assert not _warnings(
        "object.spec.colour == 'red' && oldObject.metadata.labels['a'] == 'b'",
        "object.spec.sizes.all(size, size > 1) && object.apiVersion != '' && object.metadata.name != ''",
        "authorizer.group('').resource('pods').check('get').allowed() && request.name != ''",
    )


def test_an_undefined_field_is_a_warning_with_kind_and_position() -> None:
    (warning,) = _warnings("object.spec.colour == 'red'", "object.spec.color == 'red'")
    assert warning == {
        "fieldRef": "spec.validations[1].expression",
        "warning": (
            "example.com/v1, Kind=Widgets: ERROR: <input>:1:12: undefined field 'color'\n"
            " | object.spec.color == 'red'\n | ...........^\n"
        ),
    }


def test_a_message_expression_is_checked_too() -> None:
    (warning,) = _warnings(validations=[{"expression": "true", "messageExpression": "object.spec.shape"}])
    assert warning["fieldRef"] == "spec.validations[0].messageExpression"
    assert "undefined field 'shape'" in warning["warning"]


def test_each_kind_is_checked_in_order_of_its_name() -> None:
    (warning,) = _warnings("object.spec.x == 1", rules=[_rule("widgets", "gadgets")])
    first, second = warning["warning"].split("\n\n")
    assert first.startswith("example.com/v1, Kind=Gadgets: ERROR")
    assert second.startswith("example.com/v1, Kind=Widgets: ERROR")


def test_a_wrong_type_is_a_warning() -> None:
    (warning,) = _warnings("object.spec.colour > 3")
    assert "found no matching overload for '_>_' applied to '(string, int)'" in warning["warning"]


def test_the_result_need_not_be_a_bool() -> None:
    assert not _warnings("object.spec.colour")


def test_variables_have_the_types_of_their_expressions() -> None:
    variables = [{"name": "colour", "expression": "object.spec.colour"}, {"name": "spec", "expression": "object.spec"}]
    (warning,) = _warnings("variables.colour > 3", "variables.spec.x == 1", variables=variables)
    assert warning["fieldRef"] == "spec.validations[0].expression"


def test_parameters_have_the_type_of_their_kind_if_it_is_known() -> None:
    known, unknown = {"apiVersion": "v1", "kind": "ConfigMap"}, {"apiVersion": "example.com/v1", "kind": "Gone"}
    (warning,) = _warnings("params.datum.x == ''", "params.data.x == ''", paramKind=known)
    assert "undefined field 'datum'" in warning["warning"]
    assert not _warnings("params.datum.x == ''", paramKind=unknown)


def test_a_built_in_kind_is_checked_with_all_that_its_schema_refers_to() -> None:
    rules = [_rule("configmaps", group="")]
    (warning,) = _warnings("object.metadata.label.a == ''", "object.metadata.labels.a == ''", rules=rules)
    assert warning["warning"].startswith("/v1, Kind=ConfigMap: ERROR: <input>:1:16: undefined field 'label'")


def test_a_schema_that_contains_itself_ends() -> None:
    rules = [_rule("customresourcedefinitions", group="apiextensions.k8s.io")]
    (warning,) = _warnings("object.spec.x", "object.spec.versions[0].schema.openAPIV3Schema.title == ''", rules=rules)
    assert "undefined field 'x'" in warning["warning"]


def test_wildcards_subresources_and_unknown_resources_are_skipped() -> None:
    for rule in (
        _rule("*"),
        _rule("widgets/status"),
        _rule("gone"),
        _rule("widgets", group="*"),
        _rule("widgets", version="*"),
    ):
        assert not _warnings("object.spec.x == 1", rules=[rule])


def test_at_most_ten_kinds_are_checked() -> None:
    kinds = [_custom(f"kinds{number:02}") for number in range(20)]
    spec = {"matchConstraints": {"resourceRules": [_rule(kind.plural) for kind in kinds]}}
    assert kinds_of(spec, Catalog(kinds)) == kinds[:MAX_KINDS]
