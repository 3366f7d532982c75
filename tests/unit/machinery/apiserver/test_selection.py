"""The common key of all changes that a selection matches, which decides the watchers to wake."""

from __future__ import annotations

import pytest

from atoll.machinery.apiserver.call.options import ListOptions
from atoll.machinery.apiserver.catalog.selection import selection
from atoll.machinery.kinds.conversion import Conversion, Webhook
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.requirements import EXISTS, new_requirement
from atoll.machinery.meta.selectors import LabelSelector
from atoll.machinery.storage.contract import EVERYTHING, Interest

CONFIGMAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", singular="configmap", builtin=True)


@pytest.mark.parametrize(
    ("labels", "fields", "interest"),
    [
        ("", "", EVERYTHING),
        ("a=b", "", Interest(label=("a", "b"))),
        ("b=2,a==1", "", Interest(label=("a", "1"))),
        ("a=b,c", "", Interest(label=("a", "b"))),
        ("a!=b", "", EVERYTHING),
        ("a", "", EVERYTHING),
        ("a in (b,c)", "", EVERYTHING),
        ("!a", "", EVERYTHING),
        ("", "metadata.name=x", Interest(name="x")),
        ("a=b", "metadata.name=x", Interest(name="x")),
        ("", "metadata.name!=x", EVERYTHING),
        ("", "metadata.namespace=n", EVERYTHING),
    ],
)
def test_an_equality_is_what_all_changes_share(labels: str, fields: str, interest: Interest) -> None:
    options = ListOptions(label_selector=labels, field_selector=fields)
    assert selection(CONFIGMAPS, options).interest == interest


def test_labels_that_a_webhook_may_change_decide_nothing() -> None:
    converted = Kind(
        group="g",
        version="v2",
        kind="K",
        plural="ks",
        singular="k",
        conversion=Conversion(Webhook("https://x", b"", ("v1",)), "mark", "K", "g/v1", False, {}),
    )
    assert selection(converted, ListOptions(label_selector="a=b")).interest == EVERYTHING
    assert selection(converted, ListOptions(field_selector="metadata.name=x")).interest == Interest(name="x")


@pytest.mark.parametrize("labels", ["", "a=b"])
def test_a_view_that_selects_nothing_selects_nothing_with_the_clients_selector_too(labels: str) -> None:
    """A view's selector keeps its requirements when a claim without matches narrows it."""
    claimed = LabelSelector([new_requirement("claimed", EXISTS, ())], matches_nothing=True)
    chosen = selection(CONFIGMAPS, ListOptions(label_selector=labels), claimed)
    assert not chosen.matches_object({"metadata": {"labels": {"claimed": "x", "a": "b"}}})
