"""Keys of events: the key that signs, the keys that are trusted, and the file that holds them."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from atoll.machinery.stream.event_keys import (
    LEAD_S,
    MAX_KEYS,
    OVERLAP_S,
    EventKeys,
    InvalidKeysFile,
    by_id,
    load_keys,
    new_key,
    rotate_key,
)


def test_a_new_key_is_announced_before_it_signs_and_the_old_one_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "event-keys.json"
    (first,) = load_keys(path)
    begin = time.time()
    added = rotate_key(path)
    old, new = (EventKeys([each]).current.public for each in (first, added))
    keys = EventKeys(load_keys(path))
    for after_s, signs, believed in (
        (0, old, (old, new)),
        (LEAD_S - 10, old, (old, new)),
        (LEAD_S + 10, new, (old, new)),
        (LEAD_S + OVERLAP_S - 10, new, (old, new)),
        (LEAD_S + OVERLAP_S + 10, new, (new,)),
    ):
        monkeypatch.setattr(time, "time", lambda after_s=after_s: begin + after_s)
        assert (keys.current.public, keys.announced) == (signs, believed)


def test_the_file_is_its_owners_alone_and_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "event-keys.json"
    assert load_keys(path) == load_keys(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    rotate_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for _ in range(MAX_KEYS + 2):
        rotate_key(path)
    assert len(load_keys(path)) == MAX_KEYS


@pytest.mark.parametrize("text", ["", "{}", '{"signing_keys":[]}', '{"signing_keys":[{"secret":"AAAA"}]}'])
def test_a_file_without_keys_is_refused_and_never_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "event-keys.json"
    path.write_text(text)
    for call in (load_keys, rotate_key):
        with pytest.raises(InvalidKeysFile):
            call(path)
    assert path.read_text() == text


def test_what_is_no_key_is_not_trusted() -> None:
    public = EventKeys([new_key()]).announced[0]
    assert list(by_id(["", "AAAA", "not base64", public]).values()) == [public]
