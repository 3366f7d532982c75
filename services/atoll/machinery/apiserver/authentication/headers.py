"""Identity headers: who may send them, and what they say.

A proxy with a certificate of the request-header CA says with X-Remote-* headers for whom it asks (kcp's
front proxy does). From anybody else such a header is an attempt, in whatever spelling, and refuses the
request; a trusted proxy's request is refused too if a spelling got through it that only looks like one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import unquote

import msgspec

from atoll.machinery.apiserver.authentication.tokens import authenticated
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import User

Headers = Mapping[str, list[str]]

#: Refused from others even where the headers in use were renamed: something behind us may know them.
_DEFAULT_FAMILY = "x-remote-"


class HeaderNames(msgspec.Struct, frozen=True):
    """Names of the identity headers, lower case, in the order in which they are looked at; `extra` are prefixes."""

    user: tuple[str, ...] = ("x-remote-user",)
    group: tuple[str, ...] = ("x-remote-group",)
    uid: tuple[str, ...] = ("x-remote-uid",)
    extra: tuple[str, ...] = ("x-remote-extra-",)

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.user, *self.group, *self.uid, *self.extra)


def canonical(name: str) -> str:
    """A header name as a careless program behind us might read it: case, `_` for `-`, percent-encoding."""
    return unquote(name).lower().replace("_", "-")


def in_family(headers: Headers, prefixes: tuple[str, ...]) -> list[str]:
    """Header names that are, or could be read as, of a family, as they were sent."""
    return [name for name in headers if _belongs(name, prefixes)]


@lru_cache(maxsize=1024)
def _belongs(name: str, prefixes: tuple[str, ...]) -> bool:
    return canonical(name).startswith(prefixes)


class RequestHeaders:
    """Reads the identity headers of trusted proxies."""

    def __init__(self, names: HeaderNames | None = None) -> None:
        self._names = names or HeaderNames()
        self._family = (_DEFAULT_FAMILY, *self._names.all)

    def sent(self, headers: Headers) -> list[str]:
        """The identity headers of a request, in any spelling."""
        return in_family(headers, self._family)

    def user(self, headers: Headers, sent: Iterable[str]) -> User:
        """The user a trusted proxy speaks for. Raises Unauthorized unless all is spelled as configured."""
        names = self._names
        listed = {token.strip().lower() for value in headers.get("connection", ()) for token in value.split(",")}
        extra: dict[str, tuple[str, ...]] = {}
        for name in sent:
            if name in listed:
                raise Unauthorized
            prefix = next((prefix for prefix in names.extra if name.startswith(prefix)), "")
            if prefix:
                key = unquote(name[len(prefix) :]).lower()
                extra[key] = (*extra.get(key, ()), *headers[name])
            elif name not in (*names.user, *names.group, *names.uid):
                raise Unauthorized
        user = self._single(headers, names.user)
        if not user:
            raise Unauthorized
        groups = tuple(group for name in names.group for group in headers.get(name, ()) if group)
        return authenticated(User(user, groups, self._single(headers, names.uid), extra))

    def _single(self, headers: Headers, names: tuple[str, ...]) -> str:
        """The value of the first of these headers that has one."""
        found = ""
        for name in names:
            values = headers.get(name, [])
            if len(values) > 1:
                raise Unauthorized  # whose is the second?
            found = found or (values[0] if values else "")
        return found
