"""The valid keys of a shard: those of the file, those of its Shard object, and the effect of changes of either."""

from __future__ import annotations

from atoll.machinery.stream.event_keys import EventKeys, by_id, new_key
from atoll.replication.shard_keys import ShardKeys

OLD, NEW, LATER = (EventKeys([new_key()]).announced[0] for _ in range(3))


def test_the_file_counts_until_a_shard_object_goes_on_from_it() -> None:
    known = ShardKeys({"root": [OLD]}, None)
    assert known.of("root") == by_id([OLD])
    known.announce({"root": [OLD, NEW]})
    assert known.of("root") == by_id([OLD, NEW])
    known.announce({"root": [NEW]})
    assert known.of("root") == by_id([NEW]), "the old key of the file is not believed for ever"


def test_a_process_that_starts_again_with_its_file_stays_where_the_chain_is() -> None:
    known = ShardKeys({"root": [OLD]}, None)
    known.announce({"root": [OLD, NEW]})
    again = ShardKeys({"root": [OLD]}, known.state)
    again.announce({"root": [LATER]})
    assert again.of("root") == by_id([LATER])


def test_a_new_file_counts_before_a_shard_object_that_does_not_name_its_key() -> None:
    """The earlier key may be compromised."""
    known = ShardKeys({"root": [OLD]}, None)
    known.announce({"root": [OLD]})
    again = ShardKeys({"root": [NEW]}, known.state)
    again.announce({"root": [OLD]})
    assert again.of("root") == by_id([NEW])
    again.announce({"root": [NEW]})
    assert again.of("root") == by_id([NEW])


def test_a_shard_that_no_file_names_has_the_keys_of_its_shard_object_and_else_none() -> None:
    known = ShardKeys({"root": [OLD]}, None)
    assert known.of("east") == {}
    known.announce({"east": [NEW]})
    assert known.of("east") == by_id([NEW])


def test_without_a_file_no_shard_has_keys_whatever_its_shard_object_says() -> None:
    known = ShardKeys({}, None)
    known.announce({"root": [NEW], "east": [NEW]})
    assert (known.of("root"), known.of("east")) == ({}, {})
