"""Keys never cross a cluster, a namespace or a name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.storage.contract import Position, Scope
from atoll.machinery.storage.encoding import keys
from harness.data.stores import CONFIGMAPS

LMDB_LIMIT_BYTES = 511
# NUL and \x01 are what the encoding itself uses; surrogates come out of badly decoded URLs.
texts = st.text(st.sampled_from("ab-.\0\1\ud800é"), max_size=8) | st.sampled_from(["x" * 255, "x" * 256, "é" * 400])
triples = st.tuples(texts, texts, texts)


@given(triples, triples)
def test_two_objects_never_share_a_key(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (keys.object_key(1, *one) == keys.object_key(1, *other)) == (one == other)


@given(triples)
def test_every_key_fits_lmdb_with_a_revision_behind_it(parts: tuple[str, str, str]) -> None:
    key = keys.object_key(1, *parts)
    assert len(key) + 8 <= LMDB_LIMIT_BYTES
    assert len(keys.owner_prefix(parts[0], "uid") + key) <= LMDB_LIMIT_BYTES
    assert len(keys.label_prefix("a", "b") + key) <= LMDB_LIMIT_BYTES
    assert key[4:].count(b"\0") == 2


@given(triples, triples)
def test_a_scope_holds_its_own_objects_and_no_others(where: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    cluster, namespace = where[0] or "c", where[1] or "n"
    scopes = {
        Scope(CONFIGMAPS): True,
        Scope(CONFIGMAPS, cluster): other[0] == cluster,
        Scope(CONFIGMAPS, cluster, namespace): other[:2] == (cluster, namespace),
        Scope(CONFIGMAPS, "", namespace): other[1] == namespace,
    }
    key = keys.object_key(7, *other)
    for scope, inside in scopes.items():
        assert keys.in_scope(key, scope, keys.scope_prefix(7, scope)) == inside
        assert not keys.in_scope(keys.object_key(8, *other), scope, keys.scope_prefix(7, scope))


short = st.text(st.sampled_from("ab-."), max_size=5)


@given(st.lists(st.builds(Position, short, short, short)))
def test_keys_sort_as_positions_do(positions: list[Position]) -> None:
    by_key = sorted(positions, key=lambda position: keys.position_key(1, position))
    assert by_key == sorted(positions)


@given(short, short, short, st.integers(0, 1 << 52))
def test_a_key_is_taken_apart_again(cluster: str, namespace: str, name: str, revision: int) -> None:
    key = keys.object_key(9, cluster, namespace, name)
    assert keys.split(key) == keys.KeyParts(9, cluster, namespace, name, False)
    assert keys.revision_of_key(key + keys.revision_key(revision)) == revision
    # Versions of one object lie between its key and BEHIND, and those of a longer name do not.
    assert (
        key < key + keys.revision_key(revision) < key + keys.BEHIND < keys.object_key(9, cluster, namespace, name + "a")
    )


def test_a_long_name_is_marked_as_a_hash() -> None:
    assert keys.split(keys.object_key(1, "c", "", "n" * 256)).hashed
    assert not keys.split(keys.object_key(1, "c", "", "n" * 255)).hashed
    # A name with the mark in it could otherwise pose as the hash of another.
    posing = keys.object_key(1, "c", "", "n\1n")
    assert keys.split(posing).hashed
    assert not posing.endswith(b"n\1n")
