"""Derived names against vectors computed by Go's math/big and crypto/sha256, as kcp computes them."""

from __future__ import annotations

from atoll.machinery.meta import hashes

INITIALIZER_DIGEST = "d1d6459a03641b6fd7560fc2849f6c66fa971a0afeded6ba2d2743f2"


def test_base_36_and_62_print_one_big_endian_number() -> None:
    assert hashes.b36(b"\x00\x24") == "10"
    assert hashes.b62(b"\x3e") == "10"
    assert hashes.b62(b"\x3d") == "Z"
    assert hashes.b36(b"\x00") == "0"


def test_padded_base_36_keeps_one_zero_a_leading_zero_byte() -> None:
    assert hashes.b36_padded(b"\x00\x00\x24") == "0010"
    assert hashes.b36_padded(b"\x00") == "0"
    assert hashes.home_cluster_name("user-420") == "086x7g9l1ke5"


def test_an_export_is_hashed_by_its_cluster_and_name() -> None:
    assert hashes.export_hash("root", "tenancy.kcp.io") == "bmCdly9xXiUpEHe3ypvDwvXMTfoVZUE92mqAQf"


def test_homes_and_shards_have_their_fixed_names() -> None:
    assert hashes.home_cluster_name("alice") == "v1u4alow0iv9"
    assert hashes.shard_hash("root") == "1pfxsevk"


def test_lifecycle_labels_fit_into_63_characters() -> None:
    key, value = hashes.initializer_label("root:universal")
    assert (key, value) == ("initializer.internal.kcp.io/" + INITIALIZER_DIGEST[:35], INITIALIZER_DIGEST)
    assert len(key) == 63
    key, value = hashes.terminator_label("root:universal")
    assert (key, value) == ("terminator.internal.kcp.io/" + INITIALIZER_DIGEST[:36], INITIALIZER_DIGEST)
    assert len(key) == 63


def test_a_claim_is_labelled_by_group_resource_and_identity_only() -> None:
    assert hashes.claim_value("", "configmaps") == "3QVjs6pfBjMpLEVYYhysJnroYGsQGlWm05E4qe"
    assert hashes.claim_value("apis.kcp.io", "apibindings", "abc") == "bmbnrUC3N6hv12a20NF6WlXVdtPAYAzIwT6jot"


def test_a_binding_without_claims_carries_the_reflexive_value() -> None:
    key, value = hashes.reflexive_claim_label("root", "tenancy.kcp.io")
    assert key == "claimed.internal.apis.kcp.io/bmCdly9xXiUpEHe3ypvDwvXMTfoVZUE92mqAQf"
    assert value == "LstvmbbzVDDOn90ZbhzSQO5U3DMCf88h1pZ"


def test_default_bindings_are_named_after_the_export_and_lower_cased() -> None:
    name = hashes.default_binding_name("1x9p0q7w5e3r2t8y", "root", "tenancy.kcp.io")
    assert name == "tenancy.kcp.io-bcby5"
    assert len(hashes.default_binding_name("root", "root", "x" * 253)) == 253


def test_identities_are_hashes_of_their_key() -> None:
    expected = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
    assert hashes.identity_hash(b"secret") == expected
    assert len(bytes.fromhex(hashes.new_identity_key())) == 32
