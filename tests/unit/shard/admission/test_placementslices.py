"""Who may say where a placement goes: the edge service, and nobody in the workspace."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import pytest
from msgspec.structs import replace

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.call.call import Call, Restrictions, View
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.edge.names import GROUP
from atoll.machinery.kcp.kinds.system_kinds import system_kinds
from atoll.machinery.meta.names import LOCAL
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.shard.admission.placementslices import PlacementSlices

KIND = system_kinds()[0]
PATH = f"/apis/{GROUP}/v2alpha1/singleplacementslices"


def slice(*targets: str, owner: str = "p", **labels: str) -> Object:
    """A slice of a placement with these SyncTargets; without an owner it is its name that counts."""
    owners = [{"kind": "EdgePlacement", "name": owner, "uid": "u"}] if owner else []
    metadata = {"name": "p", "labels": labels, "ownerReferences": owners}
    return {"metadata": metadata, "destinations": [{"cluster": "c", "syncTargetUID": each} for each in targets]}


def write(new: Object | None, old: Object | None = None, *, identity: str = "hash", by_service: bool = False) -> Review:
    return Review(
        call=Call(
            info=parse("POST", PATH.encode()),
            user=User("a", (AUTHENTICATED,)),
            cluster="w",
            kind=replace(KIND, group=GROUP, plural="singleplacementslices", identity=identity),
            restrictions=Restrictions(is_providers=by_service),
        ),
        group_resource=(GROUP, "singleplacementslices"),
        operation="create" if old is None else "update" if new is not None else "delete",
        obj=new,
        old=old,
        view=cast(View, cast(Any, None)),
    )


@pytest.mark.parametrize(
    ("review", "is_refused"),
    [
        (write(slice("t")), True),
        (write(slice("t", "s"), slice("t")), True),
        (write(slice("s"), slice("t")), True),
        (write(slice(), slice("t")), True),
        (write(slice("t", owner="q"), slice("t")), True),
        (write(slice()), False),
        (write(slice("t", a="b"), slice("t")), False),
        (write(slice("t", owner=""), slice("t")), False),
        (write(slice(owner="q"), slice()), False),
        (write(None, slice("t")), False),
        (write(slice("t"), by_service=True), False),
        (write(slice("t"), slice("s"), by_service=True), False),
        (write(slice("t"), identity=LOCAL), False),
    ],
)
def test_destinations_are_written_by_the_service_alone(review: Review, is_refused: bool) -> None:
    outcome = pytest.raises(Forbidden, match="only the edge service") if is_refused else nullcontext()
    with outcome:
        PlacementSlices().validate(review)
