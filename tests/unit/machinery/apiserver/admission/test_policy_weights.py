"""What compiled policies weigh in their cache, against the memory that is allocated for them."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from atoll.machinery.apiserver.admission.policies.program import PolicyProgram, compile_mutating, compile_validating
from atoll.machinery.meta.objects import Object

COUNT = 10


def comparisons(name: str) -> str:
    return " && ".join(f"object.metadata.name != '{name}-{number}'" for number in range(20))


def macros(name: str) -> str:
    return " && ".join(f"object.data.all(key, key != '{name}-{number}')" for number in range(10))


def literal(name: str) -> str:
    return f"object.metadata.name != '{name}{'x' * 10_000}'"


def validating(text: str) -> PolicyProgram:
    return compile_validating({"validations": [{"expression": text, "messageExpression": f"string({text})"}]})


def with_variables(text: str) -> PolicyProgram:
    spec: Object = {"variables": [{"name": "a", "expression": text}], "matchConditions": [{"expression": text}]}
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": f"{text} ? [] : []"}}
    return compile_mutating({**spec, "mutations": [patch]})


@pytest.mark.parametrize("text", [comparisons, macros, literal])
@pytest.mark.parametrize("compiled", [validating, with_variables])
def test_a_program_weighs_at_least_what_it_takes(
    compiled: Callable[[str], PolicyProgram], text: Callable[[str], str]
) -> None:
    compiled(text("first"))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = [compiled(text(f"n{number}")) for number in range(COUNT)]
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < sum(each.size_bytes for each in made) < 4 * taken
