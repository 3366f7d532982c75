"""Identity headers of the request-header CA's proxies: X-Remote-User and the like.

The authenticator reads them. A proxy with a certificate of that CA names the user of a request: our front proxy with a
signed assertion, other proxies with X-Remote-* headers (as kcp's front proxy does), none with both. Forwarders call
`in_family` for the headers that must not leave. Invariant: X-Remote headers of any other sender are ignored, as in
Kubernetes, and an assertion refuses its request; so does a header of a trusted proxy that merely resembles an identity
header.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from urllib.parse import unquote

import msgspec

from atoll.machinery.apiserver.authentication import assertion
from atoll.machinery.apiserver.authentication.tokens import authenticated
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import User
from atoll.machinery.process.config import comma_separated

Headers = Mapping[str, list[str]]

#: Never passed on, even if the configured names differ: a backend may read the default names.
DEFAULT_FAMILY = ("x-remote-", assertion.HEADER)
#: What is looked at of a name: more than any prefix. Bounds the cache and the rounds of decoding.
_MAX_PREFIX = 512
_OTHERS = re.compile("[^a-z0-9]")
_NAME = re.compile(r"[A-Za-z0-9-]{1,128}")


class HeaderNames(msgspec.Struct, frozen=True):
    """Names of the identity headers, lower case, in order of preference; `extra` are prefixes."""

    user: tuple[str, ...] = ("x-remote-user",)
    group: tuple[str, ...] = ("x-remote-group",)
    uid: tuple[str, ...] = ("x-remote-uid",)
    extra: tuple[str, ...] = ("x-remote-extra-",)

    @classmethod
    def listed(cls, user: str, group: str, uid: str, extra: str) -> HeaderNames:
        """Parse settings that are comma-separated lists of names.

        Raises ValueError for a malformed name, and if no header names the user.
        """
        found = {"username-headers": user, "group-headers": group, "uid-headers": uid, "extra-headers-prefix": extra}
        for flag, text in found.items():
            if not all(_NAME.fullmatch(name) for name in comma_separated(text)):
                raise ValueError(f"requestheader-{flag} holds what is no name of a header")
        if not comma_separated(user):
            raise ValueError("requestheader-username-headers must not be empty")
        return cls(*(comma_separated(text.lower()) for text in found.values()))

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.user, *self.group, *self.uid, *self.extra)


def canonical(name: str) -> str:
    """A header name as a lenient backend might read it: case folded, percent-decoded, any other character as `-`."""
    while (plain := unquote(name)) != name:
        name = plain
    return _OTHERS.sub("-", name.casefold())


def in_family(headers: Headers, prefixes: tuple[str, ...]) -> list[str]:
    """The names, as sent, of headers that are of a family or could be read as such."""
    return [name for name in headers if _belongs(name[:_MAX_PREFIX], prefixes)]


def belongs(name: str, prefixes: tuple[str, ...]) -> bool:
    """Return whether a header is of a family or could be read as such."""
    return _belongs(name[:_MAX_PREFIX], prefixes)


@lru_cache(maxsize=1024)
def _belongs(start: str, prefixes: tuple[str, ...]) -> bool:
    return canonical(start).startswith(prefixes)


def check_listed(headers: Headers, names: Collection[str]) -> None:
    """Raise Unauthorized if the Connection header lists one of the names: such a header ends at the last hop."""
    listed = {token.strip().lower() for value in headers.get("connection", ()) for token in value.split(",")}
    if not listed.isdisjoint(names):
        raise Unauthorized


class RequestHeaders:
    """Parses the identity headers of trusted proxies."""

    def __init__(self, names: HeaderNames | None = None) -> None:
        self._names = names or HeaderNames()
        self.family = (*DEFAULT_FAMILY, *self._names.all)

    def sent(self, headers: Headers) -> list[str]:
        """The identity headers of a request, in any spelling."""
        return in_family(headers, self.family)

    def user(self, headers: Headers, sent: Collection[str]) -> User:
        """The user that a trusted proxy names. Raises Unauthorized unless all headers are spelled as configured."""
        names = self._names
        check_listed(headers, sent)
        extra: dict[str, tuple[str, ...]] = {}
        for name in sent:
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
        """The value of the first of these headers that has one. Raises Unauthorized for a repeated header."""
        found = ""
        for name in names:
            values = headers.get(name, [])
            if len(values) > 1:
                raise Unauthorized
            found = found or (values[0] if values else "")
        return found
