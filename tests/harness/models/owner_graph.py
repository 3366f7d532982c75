"""A model of Kubernetes' garbage collector: small graphs of owners, and every state in which they may come to rest.

The collector's steps may be taken in any order, and a few graphs rest in different states by the order. So the model
follows them all: `outcomes` returns each state that no further step changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class Ref(NamedTuple):
    """A reference to an owner. `valid`: kind and name are the owner's; `namespaced`: the kind it names is."""

    uid: str
    blocks: bool
    valid: bool = True
    namespaced: bool = True


class Node(NamedTuple):
    """One object. An empty namespace: it is cluster-scoped."""

    namespace: str
    refs: tuple[Ref, ...] = ()
    finalizers: frozenset[str] = frozenset()
    deleting: bool = False


#: Objects by uid.
State = dict[str, Node]
Frozen = frozenset[tuple[str, Node]]


def deleted(state: State, uid: str, policy: str) -> State:
    """The state after a DELETE; without a policy the finalizers stay."""
    node = state[uid]
    finalizers = node.finalizers
    if policy:
        finalizers -= {FOREGROUND, ORPHAN}
    if policy in {"Foreground", "Orphan"}:
        finalizers |= {FOREGROUND if policy == "Foreground" else ORPHAN}
    return replaced(state, uid, node._replace(finalizers=finalizers, deleting=True))


def replaced(state: State, uid: str, node: Node) -> State:
    """The state with one object changed; an object under deletion without finalizers goes."""
    changed = {**state, uid: node}
    if node.deleting and not node.finalizers:
        del changed[uid]
    return changed


def outcomes(state: State, limit: int = 20_000) -> set[Frozen]:
    """Every state at rest that the collector may reach."""
    resting: set[Frozen] = set()
    seen, left = {freeze(state)}, [state]
    while left:
        at = left.pop()
        following = [each for each in _steps(at) if each != at]
        if not following:
            resting.add(freeze(at))
        for each in following:
            if freeze(each) not in seen:
                seen.add(freeze(each))
                left.append(each)
        assert len(seen) < limit, "the graph is too large"
    return resting


def freeze(state: State) -> Frozen:
    return frozenset(state.items())


def _steps(state: State) -> Iterator[State]:
    for uid, node in state.items():
        if not node.deleting:
            if node.refs:
                yield _attempted(state, uid, node)
        elif ORPHAN in node.finalizers:
            yield from _orphaning(state, uid, node)
        elif FOREGROUND in node.finalizers and not _blockers(state, uid):
            yield replaced(state, uid, node._replace(finalizers=node.finalizers - {FOREGROUND}))


def _orphaning(state: State, uid: str, node: Node) -> Iterator[State]:
    dependents = _dependents(state, uid)
    for each in dependents:
        yield _dropped(state, each, {uid})
    if not dependents:
        yield replaced(state, uid, node._replace(finalizers=node.finalizers - {ORPHAN}))


def _attempted(state: State, uid: str, node: Node) -> State:
    solid, gone, waiting = False, set[str](), False
    for ref in node.refs:
        owner = state.get(ref.uid)
        if ref.namespaced and not node.namespace:
            # A cluster-scoped object with a namespaced owner is left as it is.
            return state
        if owner is None or not ref.valid or owner.namespace not in {"", node.namespace}:
            gone.add(ref.uid)
        elif owner.deleting and FOREGROUND in owner.finalizers:
            gone.add(ref.uid)
            waiting = True
        else:
            solid = True
    if solid:
        return _dropped(state, uid, gone) if gone else state
    policy = _policy(node.finalizers)
    if waiting and (dependents := _dependents(state, uid)):
        policy = "Foreground"
        circle = any(state[each].deleting and FOREGROUND in state[each].finalizers for each in dependents)
        if circle and any(ref.blocks for ref in node.refs):
            free = tuple(ref._replace(blocks=False) for ref in node.refs)
            return replaced(state, uid, node._replace(refs=free))
    return deleted(state, uid, policy)


def _policy(finalizers: frozenset[str]) -> str:
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


def _dependents(state: State, uid: str) -> list[str]:
    return [name for name, node in state.items() if any(ref.uid == uid for ref in node.refs)]


def _blockers(state: State, uid: str) -> bool:
    return any(ref.uid == uid and ref.blocks for node in state.values() for ref in node.refs)


def _dropped(state: State, uid: str, gone: set[str]) -> State:
    node = state[uid]
    return replaced(state, uid, node._replace(refs=tuple(ref for ref in node.refs if ref.uid not in gone)))
