"""Random bindings, unbindings, definitions and upgrades in one cluster: no name ever has two holders, and every free
name is granted in the end.

Controllers reconcile keys in random order, several at a time, so that their plans and writes conflict; the log contains
every state.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.machinery.kcp.apis.naming_conflicts import Names, names_of
from atoll.machinery.meta.names import SYSTEM_BOUND_CRDS, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS, CRDS, LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import Operation, Scope
from harness.clients.api import crd
from harness.clients.exports import resource_of, schema_of
from harness.seeds import drawn
from harness.servers.in_process.minimal_shard import Cell, cell, locks_of

GROUP, HERE, THERE = "shapes.example.com", "consumer", "provider"


def define(plural: str, **names: object) -> Object:
    made = crd(plural, GROUP)
    made["spec"]["names"] = {"plural": plural, "singular": plural[:-1], **names}
    return made


#: Resources of exports and definitions, whose names conflict in every way.
DEFINITIONS = [
    define("circles", kind="Circle", listKind="CircleList"),
    define("discs", kind="Circle", listKind="DiscList"),
    define("rings", kind="Ring", listKind="RingList", shortNames=["circle", "r"]),
    define("hoops", kind="Hoop", listKind="RingList", shortNames=["r"]),
]
EXPORTS = range(len(DEFINITIONS) + 1)
#: The last export offers two of them, the second of which is the first's of another schema.
OFFERED = [[each] for each in DEFINITIONS] + [[DEFINITIONS[0], DEFINITIONS[3]]]

_FIELDS = (("plural", "plural"), ("singular", "singular"), ("kind", "kind"), ("list_kind", "listKind"))

steps = st.lists(
    st.one_of(
        st.tuples(st.just("bind"), st.sampled_from(EXPORTS)),
        st.tuples(st.just("unbind"), st.sampled_from(EXPORTS)),
        st.tuples(st.just("define"), st.integers(0, len(DEFINITIONS) - 1)),
        st.tuples(st.just("remove"), st.integers(0, len(DEFINITIONS) - 1)),
        st.tuples(st.just("upgrade"), st.sampled_from(EXPORTS)),
        st.tuples(st.just("turn"), st.integers(1, 4)),
    ),
    min_size=3,
    max_size=25,
)


@settings(max_examples=drawn(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps, st.integers(0, 2**32))
def test_no_name_has_two_holders_and_everything_heals(taken: list[tuple[str, int]], seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_run(Path(directory), taken, random.Random(seed)))


async def _run(directory: Path, taken: list[tuple[str, int]], chance: random.Random) -> None:
    async with cell(directory, chance) as here:
        await here.cluster(THERE)
        await here.cluster(HERE)
        for number in EXPORTS:
            await here.export(THERE, f"e{number}", *OFFERED[number], prefix=f"s{number}")
        for step, number in taken:
            await _step(here, step, number, chance)
        await here.settle(at_once=3)
        _check_history(here)
        _check_end(here)


async def _step(here: Cell, step: str, number: int, chance: random.Random) -> None:
    name = f"{DEFINITIONS[number % len(DEFINITIONS)]['spec']['names']['plural']}.{GROUP}"
    match step:
        case "bind" if here.get(API_BINDINGS, HERE, f"e{number}") is None:
            await here.bind(HERE, THERE, f"e{number}")
        case "unbind" if here.get(API_BINDINGS, HERE, f"e{number}") is not None:
            await here.delete(API_BINDINGS, HERE, f"e{number}")
        case "define" if here.get(CRDS, HERE, name) is None:
            await here.put(CRDS, HERE, DEFINITIONS[number])
        case "remove" if here.get(CRDS, HERE, name) is not None:
            await here.delete(CRDS, HERE, name)
        case "upgrade":
            await _upgrade(here, number, chance.randrange(1 << 30))
        case "turn":
            for _ in range(number):
                await here.turn(at_once=chance.randint(1, 4))


async def _upgrade(here: Cell, number: int, version: int) -> None:
    """New schemas of the same resources, one of whose short names is another resource's name."""
    made = []
    for each in OFFERED[number]:
        schema = schema_of(each, f"v{version}")
        schema["spec"]["names"] = {**schema["spec"]["names"], "shortNames": [["disc", "hoop", "x"][version % 3]]}
        await here.put(API_RESOURCE_SCHEMAS, THERE, schema)
        made.append(resource_of(schema))
    await here.change(API_EXPORTS, THERE, f"e{number}", spec={"resources": made})


def _check_history(here: Cell) -> None:
    """Check the holders of all names at each entry of the log."""
    held: dict[str, list[Names]] = {}
    bound = {
        each["metadata"]["name"]: names_of(each["spec"]["names"])
        for entry in here.store.tail(0, 1 << 20)
        if entry.key.type == CRDS and entry.key.cluster == SYSTEM_BOUND_CRDS and (each := decode(entry.value))
    }
    for entry in here.store.tail(0, 1 << 20):
        if entry.key.cluster != HERE or entry.key.type not in {CRDS, API_BINDINGS}:
            continue
        who = f"{entry.key.type.resource}/{entry.key.name}"
        if entry.operation is Operation.DELETED:
            held.pop(who, None)
            continue
        obj = decode(entry.value)
        held[who] = list(_accepted(obj) if entry.key.type == CRDS else _bound(obj, bound))
        names = [frozenset().union(*(each.resources for each in all_of)) for all_of in held.values()]
        kinds = [frozenset().union(*(each.kinds for each in all_of)) for all_of in held.values()]
        for sets in (names, kinds):
            assert sum(map(len, sets)) == len(frozenset().union(*sets)), (entry.revision, held)


def _accepted(definition: Object) -> Iterator[Names]:
    """The accepted names: Kubernetes sets no defaults for rejected names."""
    names = (definition.get("status") or {}).get("acceptedNames") or {}
    one = {field: names.get(key, "") for field, key in _FIELDS}
    yield Names(**one, short_names=tuple(names.get("shortNames") or ()))


def _bound(binding: Object, schemas: dict[str, Names]) -> Iterator[Names]:
    for item in (binding.get("status") or {}).get("boundResources") or ():
        yield schemas[item["schema"]["UID"]]


def _check_end(here: Cell) -> None:
    """Check that each waiting API waits for an existing holder, and that the locks match the holders."""
    locks = locks_of(here.found(LOGICAL_CLUSTERS, HERE, "cluster"))
    expected: Object = {}
    for obj in here.loopback.each(_scope(API_BINDINGS)):
        name = obj["metadata"]["name"]
        conditions = {each["type"]: each for each in obj["status"]["conditions"]}
        for item in obj["status"].get("boundResources") or ():
            expected[f"{item['resource']}.{item['group']}"] = {"n": name}
        if conditions["BindingUpToDate"]["status"] == "False":
            assert conditions["BindingUpToDate"]["reason"] == "NamingConflicts"
            assert _named(here, conditions["BindingUpToDate"]["message"])
        else:
            assert obj["status"]["phase"] == "Bound"
    for crd_ in here.loopback.each(_scope(CRDS)):
        conditions = {each["type"]: each for each in crd_["status"]["conditions"]}
        if crd_["status"]["acceptedNames"]["plural"]:
            expected[f"{crd_['status']['acceptedNames']['plural']}.{GROUP}"] = {"c": True}
        if conditions["NamesAccepted"]["status"] == "False":
            assert _holders(here) > 1
    assert locks == expected


def _named(here: Cell, message: str) -> bool:
    """Whether the first object that a message names exists."""
    kind, _, rest = message.split("naming conflict with ", 1)[1].partition(' "')
    name = rest.split('"', 1)[0]
    return here.get(API_BINDINGS if kind == "APIBinding" else CRDS, HERE, name) is not None


def _holders(here: Cell) -> int:
    return sum(1 for type in (API_BINDINGS, CRDS) for _ in here.loopback.each(_scope(type)))


def _scope(type: ResourceType) -> Scope:
    return Scope(type, HERE)
