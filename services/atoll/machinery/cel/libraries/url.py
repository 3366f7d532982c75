"""`url(text)`, `isURL(text)` and the parts of a URL.

Part of `base`. Only absolute URLs and absolute paths are valid; two URLs are equal if their texts are.
"""

from __future__ import annotations

from typing import Final

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.libraries.kubernetes_value import KubernetesValue
from atoll.machinery.cel.libraries.values import escapes, urls
from atoll.machinery.cel.types import BOOL, STRING, ListType, MapType, ObjectType

TYPE: Final = ObjectType("kubernetes.URL", {})


class URL(KubernetesValue):
    """A URL as a CEL value."""

    __slots__ = ("location",)
    cel_type = TYPE

    def __init__(self, location: urls.URLComponents) -> None:
        self.location = location

    def equals(self, other: URL) -> bool:
        return str(self.location) == str(other.location)

    def __hash__(self) -> int:
        return hash(str(self.location))


def parse(text: str) -> URL:
    """Return the URL of a text. Raises EvaluationError."""
    try:
        return URL(urls.parse(text))
    except urls.URLError as error:
        raise EvaluationError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        urls.check_request(text)
    except urls.URLError:
        return False
    return True


def _scheme(value: URL) -> str:
    return value.location.scheme


def _host(value: URL) -> str:
    return escapes.text_of(value.location.host)


def _hostname(value: URL) -> str:
    return value.location.hostname()


def _port(value: URL) -> str:
    return value.location.port()


def _escaped_path(value: URL) -> str:
    return value.location.escaped_path()


def _query(value: URL) -> dict[str, list[str]]:
    return value.location.parameters()


LIBRARY: Final = Library(
    "kubernetes.urls",
    (
        Function("url", (Overload("string_to_url", (STRING,), TYPE, parse),)),
        Function("isURL", (Overload("is_url_string", (STRING,), BOOL, _is_url),)),
        Function("getScheme", (Overload("url_get_scheme", (TYPE,), STRING, _scheme, member=True),)),
        Function("getHost", (Overload("url_get_host", (TYPE,), STRING, _host, member=True),)),
        Function("getHostname", (Overload("url_get_hostname", (TYPE,), STRING, _hostname, member=True),)),
        Function("getPort", (Overload("url_get_port", (TYPE,), STRING, _port, member=True),)),
        Function("getEscapedPath", (Overload("url_get_escaped_path", (TYPE,), STRING, _escaped_path, member=True),)),
        Function(
            "getQuery", (Overload("url_get_query", (TYPE,), MapType(STRING, ListType(STRING)), _query, member=True),)
        ),
    ),
)
