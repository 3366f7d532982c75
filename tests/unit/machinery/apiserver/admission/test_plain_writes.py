"""Which writes reach a plug-in that says that it does not validate plain ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from atoll.machinery.apiserver.admission.chain import Admission, Plugin, Review
from atoll.machinery.meta.names import CORE, LOCAL


class Recording(Plugin):
    """Notes what it validates."""

    def __init__(self) -> None:
        self.seen = 0

    def validate(self, review: Review) -> None:
        self.seen += 1


class OfOthers(Recording):
    validates_plain_writes = False


@pytest.mark.parametrize(
    ("identity", "dry_run", "seen"), [(CORE, False, 0), (CORE, True, 1), (LOCAL, False, 1), ("an-export", False, 1)]
)
def test_it_sees_custom_kinds_and_dry_runs_and_no_other_write(identity: str, dry_run: bool, seen: int) -> None:
    always, of_others = Recording(), OfOthers()
    call: Any = SimpleNamespace(
        kind=SimpleNamespace(identity=identity), restrictions=SimpleNamespace(check=None, is_data=False)
    )
    review: Any = SimpleNamespace(
        call=call, dry_run=dry_run, acting=None, group_resource=("", "configmaps"), obj={}, old=None
    )
    Admission([always, of_others]).validate(review)
    assert (always.seen, of_others.seen) == (1, seen)
