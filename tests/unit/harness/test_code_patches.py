"""Changes of a program in a running process, and their removal."""

from __future__ import annotations

import uuid

import pytest

from harness.servers import code_patches
from harness.servers.code_patches import CodePatches


class Base:
    limit = 1

    @staticmethod
    def decide() -> str:
        return "guarded"


class Guard(Base):
    limit = 2


HERE = f"from {__name__} import Base, Guard\n"


def test_a_program_is_taken_back_whole() -> None:
    patches, before = CodePatches(), {each: dict(vars(each)) for each in (Base, Guard)}
    patches.replace(f"{HERE}Guard.limit = Base.limit = 7\nGuard.limit = 8\nGuard.decide = staticmethod(lambda: 'open')")
    assert (Guard.limit, Base.limit, Guard.decide(), Base.decide()) == (8, 7, "open", "guarded")
    patches.replace(f"{HERE}Base.decide = staticmethod(lambda: 'other')")
    assert (Guard.limit, Base.limit, Guard.decide()) == (2, 1, "other"), "one program at a time"
    patches.undo()
    assert {each: dict(vars(each)) for each in (Base, Guard)} == before


def test_a_program_that_could_not_be_taken_back_is_refused() -> None:
    patches = CodePatches()
    with pytest.raises(AssertionError, match="not to be undone"):
        patches.replace(f"{HERE}Guard.limit = 9\nsetattr(Guard, 'limit', 10)")
    patches.undo()
    assert Guard.limit == 2


def test_a_process_that_listens_says_why_a_program_failed() -> None:
    address = f"atoll-test-{uuid.uuid4().hex}"
    code_patches.serve(address)
    code_patches.serve(address)
    code_patches.send(address, f"{HERE}Guard.limit = 11")
    assert Guard.limit == 11
    with pytest.raises(AssertionError, match="NoSuchName"):
        code_patches.send(address, f"{HERE}from {__name__} import NoSuchName")
    code_patches.send(address, "")
    assert Guard.limit == 2
