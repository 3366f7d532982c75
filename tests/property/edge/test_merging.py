"""Merging against a model that is written from the rules alone, in any order, with and without each source."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.edge.merging import Source, merge
from atoll.machinery.edge.names import PROJECTED, SOURCES
from atoll.machinery.meta.objects import Object
from harness.seeds import drawn

KEYS = st.sampled_from("ab")
VALUES: Any = st.sampled_from([None, True, 1, "x", [1], {"a": 1}, {"a": True}, {"b": None}])
MAPS = st.dictionaries(KEYS, st.sampled_from("xy"), max_size=2)
OWNERS = st.dictionaries(st.sampled_from("op"), st.booleans(), max_size=2).map(
    lambda rows: [owner(name, is_controller) for name, is_controller in rows.items()]
)


def owner(name: str, is_controller: bool) -> Object:
    return {"apiVersion": "v1", "kind": "A", "name": name, "uid": name, "controller": is_controller}


METADATA = st.fixed_dictionaries(
    {"name": st.just("n")},
    optional={
        "labels": MAPS,
        "annotations": MAPS,
        "finalizers": st.lists(st.sampled_from(["f/1", "f/2"]), unique=True),
        "ownerReferences": OWNERS,
    },
)
OBJECTS = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.just("K"), "metadata": METADATA},
    optional={"spec": VALUES, "data": MAPS, "other": VALUES},
)
SOURCES_OF_ONE = st.lists(
    st.tuples(st.sampled_from(["w1", "w2", "w3", "w4"]), OBJECTS, st.integers(1, 3)),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each[0],
).map(lambda rows: [Source(*row) for row in rows])


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def pick(given: list[tuple[Source, Any]]) -> tuple[Any, str, bool]:
    """The value of the source that changed last, its workspace, and whether another one has another value."""
    newest = max(each.revision for each, _ in given)
    winner = min(each.cluster for each, _ in given if each.revision == newest)
    value = next(value for each, value in given if each.cluster == winner)
    return value, winner, len({text(other) for _, other in given}) > 1


def model(sources: list[Source]) -> tuple[Object, set[tuple[str, str]]]:
    """What the table says, part by part, without the marks of the translator."""
    conflicts: set[tuple[str, str]] = set()

    def one(field: str, given: list[tuple[Source, Any]]) -> Any:
        value, winner, is_conflict = pick(given)
        if is_conflict:
            conflicts.add((field, winner))
        return value

    def by_key(field: str, parts: list[tuple[Source, dict[str, Any]]]) -> dict[str, Any]:
        keys = {key for _, part in parts for key in part}
        return {key: one(f"{field}[{key}]", [(each, part[key]) for each, part in parts if key in part]) for key in keys}

    found: Object = {}
    for field in ("labels", "annotations"):
        found[field] = by_key(f"metadata.{field}", [(each, each.obj["metadata"].get(field) or {}) for each in sources])
    owners = [
        (each, {f"v1/A/{row['name']}": row for row in each.obj["metadata"].get("ownerReferences") or []})
        for each in sources
    ]
    found["owners"] = by_key("metadata.ownerReferences", owners)
    found["finalizers"] = {one for each in sources for one in each.obj["metadata"].get("finalizers") or []}
    found["spec"] = one("spec", [(each, each.obj.get("spec")) for each in sources])
    for field in ("data", "other"):
        present = [(each, each.obj[field]) for each in sources if each.obj.get(field) is not None]
        if present and all(isinstance(value, dict) for _, value in present):
            found[field] = by_key(field, present)
        else:
            found[field] = one(field, [(each, each.obj.get(field)) for each in sources])
    return found, conflicts


def parts(obj: Object) -> Object:
    """The result in the form of the model."""
    metadata = copy.deepcopy(obj["metadata"])
    assert metadata["labels"].pop(PROJECTED) == "yes"
    metadata["annotations"].pop(SOURCES)
    owners = {f"v1/A/{row['name']}": row for row in metadata.get("ownerReferences", [])}
    found = {"labels": metadata["labels"], "annotations": metadata["annotations"], "owners": owners}
    found["finalizers"] = set(metadata.get("finalizers", []))
    return found | {field: obj.get(field) for field in ("spec", "data", "other")}


def same(a: Object, b: Object) -> bool:
    plain = [
        {key: sorted(value) if isinstance(value, set) else value or None for key, value in each.items()}
        for each in (a, b)
    ]
    return text(plain[0]) == text(plain[1])


@settings(max_examples=drawn(250))
@given(SOURCES_OF_ONE, st.randoms(use_true_random=False))
def test_the_result_is_that_of_the_rules_in_any_order(sources: list[Source], random: Any) -> None:
    before = copy.deepcopy(sources)
    found = merge(sources)
    assert sources == before
    wanted, conflicts = model(sources)
    assert same(parts(found.obj), wanted)
    assert {(each.field, each.winner) for each in found.conflicts} == conflicts
    assert found.obj["metadata"]["annotations"][SOURCES] == ",".join(sorted(each.cluster for each in sources))
    shuffled = list(sources)
    random.shuffle(shuffled)
    assert text(merge(shuffled).obj) == text(found.obj)
    assert merge(shuffled).conflicts == found.conflicts


@settings(max_examples=drawn(100))
@given(SOURCES_OF_ONE)
def test_without_the_one_that_counts_the_next_one_does_and_one_source_is_itself(sources: list[Source]) -> None:
    first = max(sources, key=lambda each: (each.revision, [-ord(letter) for letter in each.cluster]))
    rest = [each for each in sources if each is not first]
    if rest:
        next_one = max(rest, key=lambda each: (each.revision, [-ord(letter) for letter in each.cluster]))
        assert text(merge(rest).obj.get("spec")) == text(next_one.obj.get("spec"))
    alone = merge([first])
    assert alone.conflicts == ()
    wanted = {key: value for key, value in first.obj.items() if key != "metadata"}
    assert text({key: value for key, value in alone.obj.items() if key != "metadata"}) == text(wanted)
