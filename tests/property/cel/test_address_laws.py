"""Addresses and networks against Python's `ipaddress`."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.cel.libraries.values.addresses import AddressError, parse_address, parse_prefix

_V4 = st.ip_addresses(v=4)
_V6 = st.ip_addresses(v=6).filter(lambda address: getattr(address, "ipv4_mapped", None) is None)
_ADDRESSES = st.one_of(_V4, _V6)


@given(_ADDRESSES)
def test_a_canonical_text_is_read_and_written_again(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    read = parse_address(str(address))
    assert (read.bits, read.width, str(read)) == (int(address), address.max_prefixlen, str(address))


@given(_V6)
def test_the_long_form_is_the_same_address(address: ipaddress.IPv6Address) -> None:
    assert parse_address(address.exploded.upper()) == parse_address(address.compressed)


@given(_ADDRESSES)
def test_kinds_of_addresses_agree(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    read = parse_address(str(address))
    assert read.is_unspecified() == address.is_unspecified
    assert read.is_loopback() == address.is_loopback
    assert read.is_multicast() == address.is_multicast
    assert read.is_link_local_unicast() == address.is_link_local


@given(st.text("0123456789abcdefABCDEF:.%", max_size=20))
def test_a_text_is_an_address_for_both_or_for_none(text: str) -> None:
    try:
        expected = int(ipaddress.ip_address(text))
    except ValueError:
        expected = None
    try:
        found = parse_address(text).bits
    except AddressError:
        found = None
    assert found == expected


@given(_ADDRESSES, st.integers(0, 128), _ADDRESSES)
def test_networks_contain_the_same_addresses(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
    length: int,
    other: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    length = min(length, address.max_prefixlen)
    network = ipaddress.ip_network(f"{address}/{length}", strict=False)
    prefix = parse_prefix(f"{address}/{length}")
    assert str(prefix.masked()) == str(network)
    assert prefix.contains(parse_address(str(other))) == (other in network)
    assert prefix.contains(parse_address(str(address)))


@given(_V4, st.integers(0, 32), _V4, st.integers(0, 32))
def test_networks_cover_the_same_networks(
    first: ipaddress.IPv4Address, length: int, second: ipaddress.IPv4Address, other_length: int
) -> None:
    outer = ipaddress.IPv4Network(f"{first}/{length}", strict=False)
    inner = ipaddress.IPv4Network(f"{second}/{other_length}", strict=False)
    covers = parse_prefix(f"{first}/{length}").covers(parse_prefix(f"{second}/{other_length}"))
    assert covers == inner.subnet_of(outer)
