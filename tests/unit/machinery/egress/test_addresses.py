"""Addresses that a tenant's URL may reach."""

from __future__ import annotations

import socket

import pytest

from atoll.machinery.egress.addresses import Policy, policy

CLOSED = policy()
LISTENING = policy("127.0.0.0/8,::1/128", (("127.0.0.1", 6443),))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.9.1",
        "::1",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "fe80::1%lo",
        "224.0.0.1",
        "239.1.1.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
    ],
)
def test_what_nobody_may_name_is_refused(address: str) -> None:
    assert CLOSED.refusal(address, 443)


@pytest.mark.parametrize(
    "address",
    [
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2001:0:7f00:1::1",
    ],
)
def test_an_ipv4_address_inside_an_ipv6_one_is_seen(address: str) -> None:
    assert CLOSED.refusal(address, 443)


@pytest.mark.parametrize("address", ["10.1.2.3", "172.16.0.9", "192.168.250.1", "8.8.8.8", "2606:4700::1", "fd12::1"])
def test_private_and_public_addresses_may_be_called(address: str) -> None:
    assert CLOSED.refusal(address, 443) == ""


def test_the_operator_opens_networks() -> None:
    opened = policy("127.0.0.0/8, 169.254.1.0/24")
    assert opened.refusal("127.0.0.1", 443) == ""
    assert opened.refusal("::ffff:127.0.0.1", 443) == ""
    assert opened.refusal("169.254.1.9", 443) == ""
    assert opened.refusal("169.254.169.254", 443)
    assert opened.refusal("::1", 443)


def test_our_own_listeners_are_never_opened() -> None:
    assert LISTENING.refusal("127.0.0.1", 6443) == "is an address of this server"
    assert LISTENING.refusal("::ffff:127.0.0.1", 6443) == "is an address of this server"
    assert LISTENING.refusal("127.0.0.1", 6444) == ""


def test_a_listener_on_every_address_is_found_by_any_of_them() -> None:
    everywhere = policy("0.0.0.0/0,::/0", (("0.0.0.0", 6443),))
    assert everywhere.refusal("127.0.0.1", 6443) == "is an address of this server"
    assert everywhere.refusal("8.8.8.8", 6443) == ""


def test_addresses_of_this_machine_are_refused_on_any_port() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; selects the local address
        own = probe.getsockname()[0]
    assert CLOSED.refusal(own, 9999) in {"is an address of this machine", "is a loopback address"}
    assert policy(f"{own}/32").refusal(own, 9999) == ""


def test_what_is_no_network_is_refused_at_start() -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        policy("localhost")
    assert policy("") == Policy()
