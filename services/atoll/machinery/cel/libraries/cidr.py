"""`cidr(text)`, `isCIDR(text)` and the functions of a network.

Part of `base`. A network keeps the bits after its prefix until `masked()` clears them; two networks are equal only if
these bits are. IPv4-mapped IPv6 networks are rejected.
"""

from __future__ import annotations

from typing import Final

from atoll.machinery.cel.errors import EvaluationError, NoSuchOverload
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.libraries import ip
from atoll.machinery.cel.libraries.kubernetes_value import KubernetesValue
from atoll.machinery.cel.libraries.values.addresses import Prefix, parse_prefix
from atoll.machinery.cel.libraries.values.quoting import quote
from atoll.machinery.cel.types import BOOL, INT, STRING, OpaqueType

TYPE: Final = OpaqueType("net.CIDR")
_PROBLEM: Final = "network address parse error during conversion from string"


class CIDR(KubernetesValue):
    """A network as a CEL value."""

    __slots__ = ("prefix",)
    cel_type = TYPE

    def __init__(self, prefix: Prefix) -> None:
        self.prefix = prefix

    def equals(self, other: CIDR) -> bool:
        return self.prefix == other.prefix

    def __hash__(self) -> int:
        return hash(self.prefix)

    def cel_size(self) -> int:
        """Return the bytes that the prefix reaches into, as costs count them."""
        return -(-self.prefix.length // 8)


def parse(text: str) -> CIDR:
    """Return the network of a text. Raises EvaluationError."""
    try:
        return CIDR(_parse(text))
    except ValueError as error:
        # Kubernetes repeats the prefix for a text that does not parse.
        raise EvaluationError(f"{_PROBLEM}: {error}") from None


def _parse(text: str) -> Prefix:
    try:
        prefix = parse_prefix(text)
    except ValueError as error:
        raise ValueError(f"{_PROBLEM}: {error}") from None
    if prefix.address.is_mapped:
        raise ValueError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return prefix


def _is_cidr(text: str) -> bool:
    try:
        _parse(text)
    except ValueError:
        return False
    return True


def _contains_ip(value: CIDR, other: ip.IP) -> bool:
    return value.prefix.contains(other.address)


def _contains_ip_text(value: CIDR, text: str) -> bool:
    try:
        other = ip.parse(text)
    except EvaluationError:
        # Kubernetes loses the reason here.
        raise NoSuchOverload from None
    return value.prefix.contains(other.address)


def _contains_cidr(value: CIDR, other: CIDR) -> bool:
    return value.prefix.covers(other.prefix)


def _contains_cidr_text(value: CIDR, text: str) -> bool:
    return value.prefix.covers(parse(text).prefix)


def _ip(value: CIDR) -> ip.IP:
    return ip.IP(value.prefix.address)


def _masked(value: CIDR) -> CIDR:
    return CIDR(value.prefix.masked())


def _prefix_length(value: CIDR) -> int:
    return value.prefix.length


def _to_string(value: CIDR) -> str:
    return str(value.prefix)


LIBRARY: Final = Library(
    "kubernetes.net.cidr",
    (
        Function("cidr", (Overload("string_to_cidr", (STRING,), TYPE, parse),)),
        Function("isCIDR", (Overload("is_cidr", (STRING,), BOOL, _is_cidr),)),
        Function(
            "containsIP",
            (
                Overload("cidr_contains_ip_string", (TYPE, STRING), BOOL, _contains_ip_text, member=True),
                Overload("cidr_contains_ip_ip", (TYPE, ip.TYPE), BOOL, _contains_ip, member=True),
            ),
        ),
        Function(
            "containsCIDR",
            (
                Overload("cidr_contains_cidr_string", (TYPE, STRING), BOOL, _contains_cidr_text, member=True),
                Overload("cidr_contains_cidr", (TYPE, TYPE), BOOL, _contains_cidr, member=True),
            ),
        ),
        Function("ip", (Overload("cidr_ip", (TYPE,), ip.TYPE, _ip, member=True),)),
        Function("masked", (Overload("cidr_masked", (TYPE,), TYPE, _masked, member=True),)),
        Function("prefixLength", (Overload("cidr_prefix_length", (TYPE,), INT, _prefix_length, member=True),)),
        Function("string", (Overload("cidr_to_string", (TYPE,), STRING, _to_string),)),
    ),
    types=(TYPE,),
)
