"""What a definer defines: a CustomResourceDefinition its kind, an APIBinding those of its export. Pure.

`reading` asks it of the definers of a workspace, `definitions` of those in a mailbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from atoll.machinery.edge.what import defined_kinds
from atoll.machinery.meta.objects import Object, status_of

#: Kind -> identity of the export that it comes from, "" of a CustomResourceDefinition.
Defined: TypeAlias = Mapping[tuple[str, str], str]
#: Values that are shared; a binding of Kubernetes' own kinds has some fifty of them.
_MOST = 1024


def defined_by(definer: Object | None) -> Defined:
    """Return the kinds that a definer defines now, once it is established or bound."""
    if definer is None:
        return _shared(())
    rows = status_of(definer).get("boundResources") or ()
    schemas = {(row.get("group") or "", row["resource"]): row.get("schema") or {} for row in rows}
    kinds = sorted(defined_kinds(definer))
    return _shared(tuple((kind, schemas.get(kind, {}).get("identityHash", "")) for kind in kinds))


@lru_cache(_MOST)
def _shared(rows: tuple[tuple[tuple[str, str], str], ...]) -> Defined:
    return dict(rows)
