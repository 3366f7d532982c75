"""A workspace has so many EdgePlacements and no more; what it has it may change."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import pytest
from msgspec.structs import replace

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.call.call import Call, View
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.edge.names import GROUP
from atoll.machinery.kcp.kinds.system_kinds import system_kinds
from atoll.machinery.meta.names import LOCAL
from atoll.machinery.meta.status import Forbidden
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.shard.admission.edgeplacements import MAX_PLACEMENTS, EdgePlacements

KIND = system_kinds()[0]
PATH = f"/apis/{GROUP}/v2alpha1/edgeplacements"


class Stored:
    """A view of a workspace with placements."""

    def __init__(self, count: int) -> None:
        self._count = count

    def revisions(self, scope: object, after: object = None, limit: int = 500) -> list[tuple[int, int]]:
        return [(number, 1) for number in range(min(self._count, limit))]


def write(count: int, operation: str = "create", *, subresource: str = "", identity: str = "hash") -> Review:
    """A write where there are `count` placements."""
    kind = replace(KIND, group=GROUP, plural="edgeplacements", identity=identity)
    obj: dict[str, Any] = {"metadata": {"name": "p"}}
    return Review(
        call=Call(info=parse("POST", PATH.encode()), user=User("a", (AUTHENTICATED,)), cluster="w", kind=kind),
        group_resource=(GROUP, "edgeplacements"),
        operation=operation,
        obj=obj,
        old=None if operation == "create" else obj,
        view=cast(View, Stored(count)),
        subresource=subresource,
    )


@pytest.mark.parametrize(
    ("review", "is_refused"),
    [
        (write(MAX_PLACEMENTS - 1), False),
        (write(MAX_PLACEMENTS), True),
        (write(10_000), True),
        (write(10_000, "update"), False),
        (write(10_000, "update", subresource="status"), False),
        (write(10_000, identity=LOCAL), False),
    ],
)
def test_one_more_is_refused_and_a_change_of_one_is_not(review: Review, is_refused: bool) -> None:
    outcome = pytest.raises(Forbidden, match="at most 1000 EdgePlacements") if is_refused else nullcontext()
    with outcome:
        EdgePlacements().validate(review)
