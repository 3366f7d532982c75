"""Customization of one object for one destination: expansion, replacements, what is refused, and bounds."""

from __future__ import annotations

import time
from typing import Any

import pytest

from atoll.machinery.edge.customization import (
    MAX_BYTES,
    CustomizationError,
    Customized,
    customized,
    customizer_of,
    parameters_of,
)
from atoll.machinery.edge.names import CUSTOMIZER, EXPAND, ObjectRef
from atoll.machinery.meta.objects import Object

EDGE = {"env": "prod", "loc-name": "florin", "n": "3", "a.b/c": "d"}


def configmap(data: dict[str, Any], **annotations: str) -> Object:
    metadata = {"name": "n-%(env)", "namespace": "s-%(env)", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def expanding(**data: Any) -> Object:
    return configmap(data, **{EXPAND: "true"})


def customizer(*rows: tuple[str, str], expand: bool = False) -> Object:
    annotations = {EXPAND: "true"} if expand else {}
    replacements = [{"path": path, "value": value} for path, value in rows]
    return {"metadata": {"name": "c", "namespace": "s", "annotations": annotations}, "replacements": replacements}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Running in %(loc-name).", "Running in florin."),
        ("%(env)%(env)", "prodprod"),
        ("%(a.b/c)", "d"),
        ("100%%", "100%"),
        ("%%(env)", "%(env)"),
        ("%%%(env)", "%prod"),
        ("%x", "%x"),
        ("50%", "50%"),
        ("%(env", "%(env"),
        ("%(env) %(env", "prod %(env"),
        ("%(env %%", "%(env %"),
        ("%()", "%()"),
        ("%(other)", "%(other)"),
        ("%(%(env)", "%(%(env)"),
        ("", ""),
    ],
)
def test_parameters_in_a_text_are_expanded_and_two_percent_signs_are_one(text: str, wanted: str) -> None:
    assert customized(expanding(k=text), None, EDGE).obj["data"] == {"k": wanted}


def test_a_parameter_that_is_not_defined_stays_and_is_named() -> None:
    assert customized(expanding(k="%(b) %(a) %(env)"), None, EDGE).undefined == ("a", "b")
    assert len(customized(expanding(k="".join(f"%(x{n})" for n in range(50))), None, EDGE).undefined) == 10


def test_every_text_in_an_object_is_expanded_but_no_key_and_nothing_that_says_what_it_is() -> None:
    obj = expanding(**{"%(env)": "%(env)", "list": ["%(env)", 1, None, {"x": "%(env)"}]})
    obj["metadata"]["labels"] = {"l": "%(env)"}
    obj["metadata"]["annotations"] |= {CUSTOMIZER: "%(env)", "other": "%(env)"}
    found = customized(obj, None, EDGE).obj
    assert found["data"] == {"%(env)": "prod", "list": ["prod", 1, None, {"x": "prod"}]}
    assert found["metadata"]["labels"] == {"l": "prod"}
    assert found["metadata"]["annotations"] == {EXPAND: "true", CUSTOMIZER: "%(env)", "other": "prod"}
    assert (found["metadata"]["name"], found["metadata"]["namespace"]) == ("n-%(env)", "s-%(env)")


def test_an_object_that_does_not_ask_is_not_expanded() -> None:
    for value in ("false", "True", ""):
        assert customized(configmap({"k": "%(env)"}, **{EXPAND: value}), None, None).obj["data"] == {"k": "%(env)"}


def test_replacements_are_made_after_the_expansion_in_their_order_with_values_of_any_type() -> None:
    rows = [("$.data.k", '"x"'), ("$.data", '{"k": 1, "l": [true]}'), ("$.data.k", '{"deep": null}')]
    assert customized(expanding(k="%(env)"), customizer(*rows), EDGE).obj["data"] == {"k": {"deep": None}, "l": [True]}


def test_paths_and_values_of_a_customizer_are_expanded_if_it_asks_for_it() -> None:
    rows = [("$.data.%(env)", '"env is %(env)"'), ("$.data.n", "%(n)")]
    assert customized(configmap({}), customizer(*rows, expand=True), EDGE).obj["data"] == {
        "prod": "env is prod",
        "n": 3,
    }
    assert customized(configmap({}), customizer(("$.data.k", '"%(env)"')), EDGE).obj["data"] == {"k": "%(env)"}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("$.data.%(loc-name)-x", "1", r"Customizer s/c: replacements\[1\]\.path: is no JSONPath from character 14"),
        ("$.data.k", "%(env)", r"replacements\[1\]\.value: is no JSON"),
        ("$.data.k", "", r"replacements\[1\]\.value: is no JSON"),
        ("$.data.k", "NaN", r"replacements\[1\]\.value: is no JSON"),
        ("$.data.k", "[" * 30_000, r"replacements\[1\]\.value: "),
        ("$", "[]", r"replacements\[1\]: the result is no object"),
        ("$.metadata.name", '"other"', r"replacements\[1\]: changes apiVersion, kind, name or namespace"),
        ("$..namespace", '"other"', "changes"),
        ("$", '{"metadata": {}}', "changes"),
        ("$.kind", '"Secret"', "changes"),
        ("$.metadata.labels", '{"a": 1}', "metadata.labels that are no texts"),
        ("$.metadata.annotations", "[]", "metadata.annotations that are no texts"),
        ("$.metadata.finalizers", "[1]", "metadata.finalizers that are no texts"),
        ("$.metadata.ownerReferences", '[{"name": "x"}]', "metadata.ownerReferences that are none"),
    ],
)
def test_what_cannot_be_rendered_is_refused_with_its_line(path: str, value: str, message: str) -> None:
    with pytest.raises(CustomizationError, match=message):
        customized(configmap({}), customizer(("$.data.a", "1"), (path, value), expand=True), EDGE)


def test_a_location_that_is_gone_matters_to_those_that_ask_for_its_parameters() -> None:
    assert customized(configmap({"k": "%(env)"}), customizer(("$.data.a", "1")), None).obj["data"]["a"] == 1
    for obj, rules in (
        (expanding(k="%(env)"), None),
        (configmap({}), customizer(("$.data.a", '"%(env)"'), expand=True)),
    ):
        with pytest.raises(CustomizationError, match="Location is not there"):
            customized(obj, rules, None)


def test_labels_of_a_location_win_over_its_annotations() -> None:
    metadata = {"name": "l", "labels": {"a": "label"}, "annotations": {"a": "annotation", "b": "annotation"}}
    assert parameters_of({"metadata": metadata}) == {"a": "label", "b": "annotation"}


def test_a_customizer_is_named_in_the_namespace_of_the_object_or_in_another() -> None:
    def named(text: str) -> ObjectRef | None:
        return customizer_of(configmap({}, **{CUSTOMIZER: text}))

    assert named("c") == ObjectRef("edge.kubestellar.io", "customizers", "s-%(env)", "c")
    assert named("other/c") == ObjectRef("edge.kubestellar.io", "customizers", "other", "c")
    assert named("") is None


LONG = {"x": "y" * 200_000}


@pytest.mark.parametrize(
    "bomb",
    [
        lambda: customized(expanding(k="%(x)" * 100_000), None, LONG),
        lambda: customized(expanding(k="%(x)" * 100), None, LONG),
        lambda: customized(expanding(k="%%" * 400_000), None, LONG),
        lambda: customized(expanding(k=["a"] * 100_000), None, LONG),
        lambda: customized(configmap({"k": [1] * 40_000}), customizer(("$.data.k[*]", f'"{"y" * 999}"')), None),
        lambda: customized(configmap({}), customizer(*[("$.data.k", '"%(x)"')] * 256, expand=True), LONG),
        lambda: customized(configmap({"k": [[[1] * 40] * 40] * 40}), customizer(("$..*..*..*", "1")), None),
        lambda: customized(configmap({"k": [1] * 1000}), customizer(*[("$..x", "1")] * 256), None),
    ],
)
def test_bombs_end_with_the_budget_in_the_time_of_a_request(bomb: Any) -> None:
    started = time.process_time()
    with pytest.raises(CustomizationError, match="too many"):
        bomb()
    assert time.process_time() - started < 0.5


def test_a_text_full_of_open_parentheses_is_read_once() -> None:
    text = "%(" * 20_000
    started = time.process_time()
    assert customized(expanding(k=text), None, EDGE) == Customized(expanding(k=text))
    assert time.process_time() - started < 0.5
    assert len(text) < MAX_BYTES
