"""ServiceAccounts: identities for programs, with `/token` to issue credentials."""

from __future__ import annotations

from atoll.machinery.kinds.kind import Kind, Subresource
from atoll.machinery.kinds.native import AGE, NAME, age_cell, builtin, name_cell, row

SERVICEACCOUNTS = Kind(
    **builtin("", "ServiceAccount", "serviceaccounts"),
    short_names=("sa",),
    subresources=(Subresource("token", "TokenRequest", "authentication.k8s.io", "v1", ("create",)),),
    unconditional_update=True,
    returns_deleted=True,
    columns=(NAME, AGE),
    cells=row(name_cell, age_cell),
)
