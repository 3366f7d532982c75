"""The user of a request: authentication makes it; authorization, admission and audit read it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"


class User(msgspec.Struct, frozen=True):
    """An authenticated identity, as authentication.k8s.io UserInfo carries it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def is_master(self) -> bool:
        return MASTERS in self.groups


ANONYMOUS_USER = User(ANONYMOUS, (UNAUTHENTICATED,))
