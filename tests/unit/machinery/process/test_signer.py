"""Replacing a CA or a key while it is in use: in steps, each of which may be cut off anywhere and repeated."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from atoll.machinery.process import signer
from atoll.machinery.process.pki import make_ca, read_pair
from atoll.machinery.process.private_files import Pair, write_pair, write_private
from atoll.machinery.process.signer import Signer

#: Made once: keys take their time.
OLD, NEW = make_ca("old"), make_ca("new")
UNLINK = Path.unlink


class Cut(Exception):
    pass


def made(directory: Path) -> Signer:
    write_pair(directory, "ca", OLD)
    return Signer(directory, "ca", "crt")


def new() -> tuple[bytes, bytes]:
    return NEW.certificate, NEW.key


def signing(directory: Path) -> Pair:
    found = read_pair(directory, "ca")
    assert found is not None
    return Pair(found.certificate[: found.certificate.index(b"-----END") + 26], found.key)


def test_the_next_one_is_trusted_before_it_signs_and_the_last_one_after(tmp_path: Path) -> None:
    ca = made(tmp_path)
    assert not ca.is_prepared
    ca.prepare(new)
    assert ca.is_prepared
    assert ca.trusted == [OLD.certificate, NEW.certificate]
    assert signing(tmp_path) == OLD
    ca.promote()
    assert not ca.is_prepared
    assert ca.trusted == [NEW.certificate, OLD.certificate]
    assert signing(tmp_path) == NEW
    assert ca.retire() == 1
    assert ca.trusted == [NEW.certificate]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.crt", "ca.key"], "no key of the old one is kept"


def test_steps_may_be_repeated(tmp_path: Path) -> None:
    ca = made(tmp_path)
    ca.prepare(new)
    ca.prepare(lambda: pytest.fail("a second one"))
    ca.settle()
    assert ca.trusted == [OLD.certificate, NEW.certificate]
    assert ca.retire() == 0, "what is to sign next stays trusted"
    assert ca.trusted == [OLD.certificate, NEW.certificate]
    ca.promote()
    with pytest.raises(FileNotFoundError):
        ca.promote()
    assert ca.retire() == 1
    assert ca.retire() == 0


@pytest.mark.parametrize("step", ["prepare", "promote"])
def test_a_step_that_is_cut_off_anywhere_is_completed(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in itertools.count():
        directory = tmp_path / str(count)
        ca = made(directory)
        if step == "promote":
            ca.prepare(new)
        left = count

        def cut(*_: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Cut

        def write(path: Path, data: bytes) -> None:
            cut()
            write_private(path, data)

        def removed(path: Path, missing_ok: bool = False) -> None:
            cut()
            UNLINK(path, missing_ok)

        with monkeypatch.context() as patch:
            patch.setattr(signer, "write_private", write)
            patch.setattr(Path, "unlink", removed)
            try:
                ca.prepare(new) if step == "prepare" else ca.promote()
                break
            except Cut:
                pass
        assert OLD.certificate in ca.trusted, "what was given out is trusted at every moment"
        ca.settle()
        assert signing(directory).certificate == ca.trusted[0], "the key belongs to what is first"
        if step == "prepare":
            assert signing(directory) == OLD
            ca.prepare(new)
        elif ca.is_prepared:
            ca.promote()
        assert set(ca.trusted) == {OLD.certificate, NEW.certificate}
        assert signing(directory) == (OLD if step == "prepare" else NEW)
    assert count > 2
