"""Revocation lists of client certificates."""

from __future__ import annotations

import pytest

from atoll.machinery.process import revocation
from atoll.machinery.process.pki import make_ca, make_client

CLIENTS, PROXIES = make_ca("clients"), make_ca("proxies")
ALICE, BOB, PROXY = make_client(CLIENTS, "alice").x509, make_client(CLIENTS, "bob").x509, make_client(PROXIES, "p").x509


def test_a_certificate_that_was_added_stays_beside_later_ones_and_those_of_other_authorities() -> None:
    empty = revocation.added(b"", CLIENTS)
    assert empty != b"" and revocation.read(empty) == frozenset() == revocation.read(b"")
    pem = revocation.added(empty, CLIENTS, [ALICE])
    pem = revocation.added(pem, PROXIES, [PROXY])
    pem = revocation.added(pem, CLIENTS, [BOB])
    assert revocation.read(pem) == {(each.issuer, each.serial_number) for each in (ALICE, BOB, PROXY)}
    assert revocation.added(pem, CLIENTS, [ALICE]) == pem, "what is there changes nothing"


def test_an_authority_that_was_replaced_under_its_name_keeps_what_was_revoked() -> None:
    pem = revocation.added(b"", CLIENTS, [ALICE])
    pem = revocation.added(pem, make_ca("clients"), [BOB])
    assert {(ALICE.issuer, ALICE.serial_number), (BOB.issuer, BOB.serial_number)} == revocation.read(pem)


@pytest.mark.parametrize("text", [b"no list", CLIENTS.certificate, revocation.added(b"", CLIENTS)[:-40]])
def test_a_text_without_a_list_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="no revocation list"):
        revocation.read(text)
