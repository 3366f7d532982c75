"""URLs, parsed, split and printed as Go's net/url does, with its error texts.

Called by `libraries.url` and the `uri` format. Components are bytes with their escapes decoded, because a URL may hold
bytes that are not valid text; those become U+FFFD when a component is read as text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from atoll.machinery.cel.libraries.values.addresses import AddressError, parse_address
from atoll.machinery.cel.libraries.values.escapes import Component, escape, is_escaped, text_of, unescape, unescape_host
from atoll.machinery.cel.libraries.values.quoting import quote

#: The limit of parameters of one query in Go.
MAX_PARAMETERS: Final = 10_000

_CONTROL = re.compile("[\x00-\x1f\x7f]")
_SCHEME = re.compile("([a-zA-Z][a-zA-Z0-9+.-]*):")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_PORT = re.compile("(?::[0-9]*)?")


class URLError(ValueError):
    """A text is not a URL."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"parse {quote(text)}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class URLComponents:
    """The components of a URL.

    `user` stays escaped. `raw_path` and `raw_fragment` hold the escaped form if it differs from the default encoding,
    else they are empty.
    """

    scheme: str = ""
    opaque: bytes = b""
    user: bytes | None = None
    host: bytes = b""
    omits_host: bool = False
    path: bytes = b""
    raw_path: bytes = b""
    query: bytes = b""
    has_empty_query: bool = False
    fragment: bytes = b""
    raw_fragment: bytes = b""

    def hostname(self) -> str:
        """Return the host without port and without the brackets of an IPv6 address."""
        host = self._host_and_port()[0]
        return text_of(host[1:-1] if host.startswith(b"[") and host.endswith(b"]") else host)

    def port(self) -> str:
        """Return the digits after the last colon of the host; empty if there are none."""
        return text_of(self._host_and_port()[1])

    def _host_and_port(self) -> tuple[bytes, bytes]:
        host, colon, port = self.host.rpartition(b":")
        return (host, port) if colon and (port.isdigit() or not port) else (self.host, b"")

    def escaped_path(self) -> str:
        """Return the path in its escaped form."""
        if self.raw_path and is_escaped(self.raw_path, Component.PATH):
            return text_of(self.raw_path)
        return "*" if self.path == b"*" else text_of(escape(self.path, Component.PATH))

    def parameters(self) -> dict[str, list[str]]:
        """Return the values of the query by key, decoded.

        Malformed pairs are omitted; a query with more than MAX_PARAMETERS pairs is omitted as a whole.
        """
        found: dict[str, list[str]] = {}
        pairs = self.query.split(b"&")
        for pair in pairs if len(pairs) <= MAX_PARAMETERS else ():
            key, _, value = pair.partition(b"=")
            if not pair or b";" in pair:
                continue
            try:
                name, content = unescape(key, Component.QUERY), unescape(value, Component.QUERY)
            except ValueError:
                continue
            found.setdefault(text_of(name), []).append(text_of(content))
        return found

    def __str__(self) -> str:
        """Return the text of the URL; two URLs are equal if their texts are."""
        text = f"{self.scheme}:".encode() if self.scheme else b""
        text += self.opaque or self._authority_and_path()
        if self.has_empty_query or self.query:
            text += b"?" + self.query
        if self.fragment:
            given = self.raw_fragment
            is_usual = not given or not is_escaped(given, Component.FRAGMENT)
            text += b"#" + (escape(self.fragment, Component.FRAGMENT) if is_usual else given)
        return text_of(text)

    def _authority_and_path(self) -> bytes:
        path = self.escaped_path().encode()
        start = b""
        if self.host or self.user is not None or (self.scheme and self.path and not self.omits_host):
            start = b"//" + (self.user + b"@" if self.user is not None else b"") + escape(self.host, Component.HOST)
        if path and not path.startswith(b"/") and self.host:
            start += b"/"
        # A first segment with a colon would parse as a scheme.
        if not self.scheme and not start and b":" in path.partition(b"/")[0]:
            start = b"./"
        return start + path


def check_request(text: str) -> None:
    """Check that a text is an absolute URL or an absolute path, parsed as a request target, without a fragment.

    Raises URLError.
    """
    try:
        _read(text, is_request=True)
    except ValueError as problem:
        raise URLError(text, str(problem)) from None


def parse(text: str) -> URLComponents:
    """Parse an absolute URL or an absolute path, with its fragment. Raises URLError."""
    check_request(text)
    rest, _, given = text.partition("#")
    try:
        location = _read(rest, is_request=False)
    except ValueError as problem:
        raise URLError(rest, str(problem)) from None
    raw = given.encode()
    try:
        fragment = unescape(raw, Component.FRAGMENT)
    except ValueError as problem:
        raise URLError(text, str(problem)) from None
    is_usual = escape(fragment, Component.FRAGMENT) == raw
    return replace(location, fragment=fragment, raw_fragment=b"" if is_usual else raw)


def _read(text: str, *, is_request: bool) -> URLComponents:
    """Parse a URL without a fragment. Raises ValueError with the bare problem."""
    if _CONTROL.search(text):
        raise ValueError("net/url: invalid control character in URL")
    if not text and is_request:
        raise ValueError("empty url")
    scheme, rest, query, has_empty_query = _split("" if text == "*" else text)
    user, host, has_authority, opaque = None, b"", False, b""
    if text == "*":
        rest = text
    elif not rest.startswith("/"):
        opaque = _check_rootless(scheme, rest, is_request)
        rest = "" if opaque else rest
    elif rest.startswith("//") and (scheme or (not is_request and not rest.startswith("///"))):
        authority, slash, path_text = rest[2:].partition("/")
        user, host = _authority(scheme, authority)
        rest, has_authority = slash + path_text, True
    raw = rest.encode()
    path = unescape(raw, Component.PATH)
    return URLComponents(
        scheme=scheme,
        opaque=opaque,
        user=user,
        host=host,
        omits_host=bool(scheme) and not has_authority and rest.startswith("/"),
        path=path,
        raw_path=b"" if escape(path, Component.PATH) == raw else raw,
        query=query.encode(),
        has_empty_query=has_empty_query,
    )


def _split(text: str) -> tuple[str, str, str, bool]:
    """Return scheme, the part between scheme and query, query, and whether the query is present but empty."""
    if text.startswith(":"):
        raise ValueError("missing protocol scheme")
    match = _SCHEME.match(text)
    scheme, rest = (match[1].lower(), text[match.end() :]) if match else ("", text)
    if rest.endswith("?") and rest.count("?") == 1:
        return scheme, rest[:-1], "", True
    rest, _, query = rest.partition("?")
    return scheme, rest, query, False


def _check_rootless(scheme: str, rest: str, is_request: bool) -> bytes:
    """Return the opaque part of a URL like `mailto:someone`. Raises ValueError for a relative path."""
    if scheme:
        return rest.encode()
    if is_request:
        raise ValueError("invalid URI for request")
    if ":" in rest.partition("/")[0]:
        raise ValueError("first path segment in URL cannot contain colon")
    return b""


def _authority(scheme: str, authority: str) -> tuple[bytes | None, bytes]:
    """Return the escaped user, or None, and the host with its port."""
    userinfo, at, host_text = authority.rpartition("@")
    host = _host(scheme, host_text)
    if not at:
        return None, host
    if not _USER.fullmatch(userinfo):
        raise ValueError("net/url: invalid userinfo")
    parts = (unescape(part, Component.USER) for part in userinfo.encode().split(b":", 1))
    return b":".join(escape(part, Component.USER) for part in parts), host


def _host(scheme: str, host: str) -> bytes:
    bracket = host.rfind("[")
    if bracket > 0:
        raise ValueError("invalid IP-literal")
    if bracket == 0:
        return _ip_literal(host)
    colon = host.find(":")
    # Schemes other than http and https may have hosts with colons.
    if colon >= 0 and scheme not in ("http", "https"):
        colon = host.rfind(":")
    if colon >= 0:
        _check_port(host[colon:])
    return unescape_host(host.encode())


def _ip_literal(host: str) -> bytes:
    """Return an IPv6 address in brackets, with an optional zone and port."""
    closing = host.rfind("]")
    if closing < 0:
        raise ValueError("missing ']' in host")
    _check_port(host[closing + 1 :])
    name, escape_sign, zone = host[1:closing].partition("%25")
    plain = unescape_host(name.encode()) + unescape_host((escape_sign + zone).encode(), is_zone=True)
    try:
        address = parse_address(plain.decode("utf-8", "surrogateescape"))
    except AddressError as error:
        raise ValueError(f"invalid host: {error}") from None
    if address.width == 32:
        raise ValueError("invalid IP-literal")
    return b"[" + plain + b"]" + host[closing + 1 :].encode()


def _check_port(text: str) -> None:
    if not _PORT.fullmatch(text):
        raise ValueError(f"invalid port {quote(text)} after host")
