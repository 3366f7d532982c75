"""What do the policies of thousands of workspaces take in memory: idle, and each used once?

Each workspace has five policies with a binding each: first the same in all of them, then others in each. Measured in
this process, as memory that Python allocates: the look-up of what acts, and the compiled forms. Used once: one look-up
for a kind, and every policy compiled; of others in each, as many as fill the cache of compiled policies several times.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable

from atoll.machinery.apiserver.admission.configured.registry import Acting, Registry
from atoll.machinery.apiserver.admission.policies.program import ValidatingProgram, compile_validating
from atoll.machinery.apiserver.admission.policies.programs import MAX_BYTES, Programs
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.kcp.kinds.system_kinds import system_kinds
from atoll.machinery.kinds.core.configmaps import CONFIGMAPS
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS, VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS
from atoll.machinery.storage.contract import Put
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions
from loadtest.bench import Bench
from loadtest.report import Row

POLICIES, COMPILED = 5, 1_500
_RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}


async def run(bench: Bench) -> list[Row]:
    count, rows = bench.size(2_000, 10_000), list[Row]()
    for own in (False, True):
        directory = str(bench.place())
        store = open_store(StoreOptions(directory=directory, allow_any_filesystem=True, commit_in_thread=False))
        await _fill(store, count, own=own)
        rows += _measured(store, count, "others in each" if own else "the same in all")
        await store.close()
    return rows


def _measured(store: LmdbStore, count: int, which: str) -> list[Row]:
    registry = Registry(Catalogs(system_kinds()))
    programs: Programs[ValidatingProgram] = Programs(compile_validating)
    # What loads the language, and what one workspace takes first, is not of the others.
    _compile(programs, [_looked_up(store, registry, 0)])
    tracemalloc.start()
    try:
        before = _heap()
        found = [_looked_up(store, registry, number) for number in range(1, count)]
        acting = found if which == "the same in all" else found[: COMPILED // POLICIES]
        del found
        looked_up = _heap() - before
        _compile(programs, acting)
        del acting
        compiled = _heap() - before - looked_up
    finally:
        tracemalloc.stop()
    note = f"{registry.size_bytes / 1e6:.1f} MB by their weights, {looked_up / 1e6:.1f} MB in all"
    return [
        Row(f"{count:,} workspaces, {which}, used once", looked_up / count / 1000, "KB", 3, note=note),
        Row("  compiled", max(compiled, 0) / 1e6, "MB", MAX_BYTES / 1e6),
    ]


def _heap() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _looked_up(store: LmdbStore, registry: Registry, number: int) -> Acting:
    with store.snapshot() as snapshot:
        found = registry.acting(snapshot, f"c{number}", CONFIGMAPS)
    assert found is not None
    return found


def _compile(programs: Programs[ValidatingProgram], used: Iterable[Acting]) -> None:
    for acting in used:
        for each in acting.validating_policies:
            programs.of(each.policy)


async def _fill(store: LmdbStore, count: int, *, own: bool) -> None:
    for number in range(count):
        cluster = f"c{number}"
        puts = [_put(ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster"), status={"phase": "Ready"})]
        for index in range(POLICIES):
            name, text = f"policy-{index}", f"{cluster if own else 'every'}-{index}"
            bound = {"policyName": name, "validationActions": ["Deny"]}
            puts += [
                _put(ObjectKey(VALIDATING_POLICIES, cluster, "", name), spec=_policy(text)),
                _put(ObjectKey(VALIDATING_POLICY_BINDINGS, cluster, "", name), spec=bound),
            ]
        await store.submit(puts)


def _put(key: ObjectKey, **fields: Object) -> Put:
    value, hole = encode({"metadata": {"name": key.name}, **fields})
    return Put(key, value, hole, 0)


def _policy(text: str) -> Object:
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [_RULE], "matchPolicy": "Equivalent"},
        "validations": [
            {"expression": f"object.metadata.name != '{text}'", "message": "the name is taken"},
            {"expression": "!has(object.data) || object.data.all(key, size(key) < 200)"},
        ],
    }
