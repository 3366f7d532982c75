"""An edge cluster tells its own renewals of the mailbox's Lease from those of a copy of the machine."""

from __future__ import annotations

from pathlib import Path

from atoll.syncer.renewals import EdgeRenewals
from atoll.syncer.state import State


def renewals(file: Path | None) -> tuple[State, EdgeRenewals]:
    state = State("target", "uid", file)
    return state, EdgeRenewals(state, file, "uid", f"host_{state.identity}")


async def test_what_may_have_arrived_is_ours_also_after_a_kill_and_what_a_copy_wrote_is_not(tmp_path: Path) -> None:
    state, first = renewals(tmp_path / "state")
    state.save()
    await first.note("", "1")
    await first.note("1", "2")
    again, after = renewals(tmp_path / "state")
    assert (again.identity, after.identity) == (state.identity, first.identity)
    assert after.is_ours("1") and after.is_ours("2") and not after.is_ours("3")
    for number in range(10, 30):
        await after.note("2", str(number))
    assert after.is_ours("2"), "none of them arrived"
    assert after.is_ours("25") and after.is_ours("29"), "they may still arrive"
    assert not after.is_ours("10"), "few are kept"


async def test_a_copy_goes_by_another_mark_from_then_on_and_each_is_another_edge_to_the_other(tmp_path: Path) -> None:
    _, first = renewals(tmp_path / "state")
    state, copy = renewals(tmp_path / "copy")
    before = copy.identity
    assert not first.is_of_another_edge(before)
    assert copy.renamed() == copy.identity != before
    assert first.is_of_another_edge(copy.identity) and copy.is_of_another_edge(first.identity)
    assert not first.is_of_another_edge("") and not copy.is_of_another_edge("pod_of_before")
    state.save()
    _, again = renewals(tmp_path / "copy")
    assert again.identity == copy.identity


async def test_without_a_file_or_with_a_broken_one_no_renewal_of_before_is_ours(tmp_path: Path) -> None:
    _, first = renewals(tmp_path / "state")
    await first.note("", "1")
    (tmp_path / "state.renewals").write_bytes(b"\xff\xfe")
    _, again = renewals(tmp_path / "state")
    assert not again.is_ours("1")
    _, alone = renewals(None)
    await alone.note("", "1")
    assert alone.is_ours("1")
