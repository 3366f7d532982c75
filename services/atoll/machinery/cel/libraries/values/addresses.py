"""IP addresses and network prefixes, parsed as Go's net/netip parses them, with its error texts.

Called by `libraries.ip`, `libraries.cidr` and `values.urls` for hosts. An address is its bits as an integer with its
width, 32 or 128, so membership in a network is arithmetic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from atoll.machinery.cel.libraries.values.quoting import quote

_HEX_GROUP = re.compile("[0-9a-fA-F]*")
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = re.compile(rf"({_OCTET})\.({_OCTET})\.({_OCTET})\.({_OCTET})")
#: No sign, no leading zeros, no more digits than a 64-bit integer.
_LENGTH = re.compile("0|[1-9][0-9]{0,18}")
_INT64_MAX: Final = 2**63 - 1
_MAPPED: Final = 0xFFFF
_MAX_GROUP_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class Address:
    """An address by its bits. `width` is 32 or 128; `zone` names an interface and is usually empty."""

    bits: int
    width: int
    zone: str = ""

    def __str__(self) -> str:
        """Return the canonical text."""
        if self.width == 32:
            return str(IPv4Address(self.bits))
        # Go writes the last four bytes of a mapped address with dots; Python does not.
        text = f"::ffff:{IPv4Address(self.bits & 0xFFFFFFFF)}" if self.is_mapped else str(IPv6Address(self.bits))
        return f"{text}%{self.zone}" if self.zone else text

    @property
    def is_mapped(self) -> bool:
        """Whether this is an IPv4-mapped IPv6 address (`::ffff:1.2.3.4`)."""
        return self.width == 128 and self.bits >> 32 == _MAPPED

    def is_unspecified(self) -> bool:
        """`0.0.0.0` or `::`."""
        return self.bits == 0

    def is_loopback(self) -> bool:
        """127.0.0.0/8 or `::1`."""
        return self.bits >> 24 == 127 if self.width == 32 else self.bits == 1

    def is_multicast(self) -> bool:
        """224.0.0.0/4 or ff00::/8."""
        return self.bits >> 28 == 0xE if self.width == 32 else self.bits >> 120 == 0xFF

    def is_link_local_multicast(self) -> bool:
        """224.0.0.0/24 or ff02::/16 with any flags."""
        return self.bits >> 8 == 0xE00000 if self.width == 32 else self.bits >> 112 & 0xFF0F == 0xFF02

    def is_link_local_unicast(self) -> bool:
        """169.254.0.0/16 or fe80::/10."""
        return self.bits >> 16 == 0xA9FE if self.width == 32 else self.bits >> 118 == 0xFE80 >> 6

    def is_global_unicast(self) -> bool:
        """Neither one of the special ranges above nor IPv4's broadcast. Private networks count as global."""
        if self.bits == 0 or (self.width == 32 and self.bits == 0xFFFFFFFF):
            return False
        return not (self.is_loopback() or self.is_multicast() or self.is_link_local_unicast())


@dataclass(frozen=True, slots=True)
class Prefix:
    """A network: an address, which may have bits set after the prefix, and the prefix's length in bits."""

    address: Address
    length: int

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"

    def masked(self) -> Prefix:
        """Return the network with the bits after the prefix cleared."""
        shift = self.address.width - self.length
        return Prefix(Address(self.address.bits >> shift << shift, self.address.width), self.length)

    def contains(self, address: Address) -> bool:
        """Report whether an address of the same family is in the network; False for the other family."""
        shift = self.address.width - self.length
        return self.address.width == address.width and self.address.bits >> shift == address.bits >> shift

    def covers(self, other: Prefix) -> bool:
        """Report whether every address of the other network is in this one."""
        return self.length <= other.length and self.contains(other.address)


class AddressError(ValueError):
    """A text is not an address; `at` is the rest of the text at the error."""

    def __init__(self, text: str, problem: str, at: str = "") -> None:
        where = f" (at {quote(at)})" if at else ""
        super().__init__(f"ParseAddr({quote(text)}): {problem}{where}")


def parse_address(text: str) -> Address:
    """Parse an address of either family. Raises AddressError with Go's text."""
    for char in text:
        if char == ".":
            return Address(_ipv4_bits(text, text), 32)
        if char == ":":
            return _parse_ipv6(text)
        if char == "%":
            raise AddressError(text, "missing IPv6 address")
    raise AddressError(text, "unable to parse IP")


def _ipv4_bits(text: str, part: str) -> int:
    """Return the bits of the dotted `part` of `text`."""
    match = _IPV4.fullmatch(part)
    if match is None:
        raise _ipv4_error(text, part)
    a, b, c, d = match.groups()
    return int(a) << 24 | int(b) << 16 | int(c) << 8 | int(d)


def _ipv4_error(text: str, part: str) -> AddressError:
    """Return the error of a part that is not a dotted address: the first problem from the left."""
    value = digits = dots = 0
    for index, char in enumerate(part):
        if "0" <= char <= "9":
            if digits == 1 and value == 0:
                return AddressError(text, "IPv4 field has octet with leading zero")
            value, digits = value * 10 + int(char), digits + 1
            if value > 255:
                return AddressError(text, "IPv4 field has value >255")
            continue
        problem = _dot_problem(part, index, dots)
        if problem:
            return AddressError(text, problem, "" if problem == _TOO_LONG else part[index:])
        dots, value, digits = dots + 1, 0, 0
    return AddressError(text, "IPv4 address too short")


_TOO_LONG = "IPv4 address too long"


def _dot_problem(part: str, index: int, dots: int) -> str:
    if part[index] != ".":
        return "unexpected character"
    if index in (0, len(part) - 1) or part[index - 1] == ".":
        return "IPv4 field must have at least one digit"
    return _TOO_LONG if dots == 3 else ""


def _parse_ipv6(text: str) -> Address:
    body, percent, zone = text.partition("%")
    if percent and not zone:
        raise AddressError(text, "zone must be a non-empty string")
    groups, gap = _ipv6_groups(text, body)
    if len(groups) < 8:
        if gap < 0:
            raise AddressError(text, "address string too short")
        groups[gap:gap] = [0] * (8 - len(groups))
    elif gap >= 0:
        raise AddressError(text, "the :: must expand to at least one field of zeros")
    bits = 0
    for group in groups:
        bits = bits << 16 | group
    return Address(bits, 128, zone)


def _ipv6_groups(text: str, rest: str) -> tuple[list[int], int]:
    """Return the 16-bit groups as written, and the index before which zeros are omitted (-1: none are)."""
    groups: list[int] = []
    gap = -1
    if rest.startswith("::"):
        gap, rest = 0, rest[2:]
        if not rest:
            return groups, gap
    while len(groups) < 8:
        group, tail = _ipv6_group(text, rest)
        if tail.startswith("."):
            groups += _embedded(text, rest, len(groups), gap)
            return groups, gap
        groups.append(group)
        if not tail:
            return groups, gap
        rest = _after_colon(text, tail)
        if rest.startswith(":"):
            if gap >= 0:
                raise AddressError(text, "multiple :: in address", rest)
            gap, rest = len(groups), rest[1:]
            if not rest:
                return groups, gap
    raise AddressError(text, "trailing garbage after address", rest)


def _ipv6_group(text: str, rest: str) -> tuple[int, str]:
    """Return the first group of a text and the rest after it."""
    match = _HEX_GROUP.match(rest)
    digits = match[0] if match else ""
    if len(digits) > _MAX_GROUP_DIGITS:
        raise AddressError(text, "each group must have 4 or less digits", rest)
    if not digits:
        raise AddressError(text, "each colon-separated field must have at least one digit", rest)
    return int(digits, 16), rest[len(digits) :]


def _after_colon(text: str, rest: str) -> str:
    if rest[0] != ":":
        raise AddressError(text, "unexpected character, want colon", rest)
    if len(rest) == 1:
        raise AddressError(text, "colon must be followed by more characters", rest)
    return rest[1:]


def _embedded(text: str, rest: str, groups: int, gap: int) -> list[int]:
    """Return the last two groups, written as a dotted address."""
    if gap < 0 and groups != 6:
        raise AddressError(text, "embedded IPv4 address must replace the final 2 fields of the address", rest)
    if groups > 6:
        raise AddressError(text, "too many hex fields to fit an embedded IPv4 at the end of the address", rest)
    bits = _ipv4_bits(text, rest)
    return [bits >> 16, bits & 0xFFFF]


def parse_prefix(text: str) -> Prefix:
    """Parse a network of the form `address/length`. Raises ValueError with Go's text."""
    address_text, slash, bits = text.rpartition("/")
    if not slash:
        raise _prefix_error(text, "no '/'")
    try:
        address = parse_address(address_text)
    except AddressError as error:
        raise _prefix_error(text, str(error)) from None
    if address.zone:
        raise _prefix_error(text, "IPv6 zones cannot be present in a prefix")
    if not _LENGTH.fullmatch(bits) or int(bits) > _INT64_MAX:
        raise _prefix_error(text, f"bad bits after slash: {quote(bits)}")
    if int(bits) > address.width:
        raise _prefix_error(text, "prefix length out of range")
    return Prefix(address, int(bits))


def _prefix_error(text: str, problem: str) -> ValueError:
    return ValueError(f"netip.ParsePrefix({quote(text)}): {problem}")
