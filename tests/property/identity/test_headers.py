"""Laws of identity headers and assertions: no spelling of a header is forwarded, and no changed assertion is valid."""

from __future__ import annotations

from urllib.parse import quote

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.apiserver.authentication.assertion import (
    HEADER,
    LIFE_S,
    AssertionClaims,
    AssertionSigner,
    AssertionVerifier,
    sign,
    verify,
)
from atoll.machinery.apiserver.authentication.jwt import TokenError
from atoll.machinery.apiserver.authentication.request_headers import DEFAULT_FAMILY, HeaderNames, RequestHeaders
from atoll.machinery.apiserver.forwarded_identity import passed_on
from atoll.machinery.meta.user import User
from harness.seeds import drawn

KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = KEY.public_key()
NAMES = HeaderNames.listed("X-Remote-User, X-Sso-User", "X-Remote-Group", "X-Remote-Uid", "X-Remote-Extra-,X-Sso-More-")
FAMILY = RequestHeaders(NAMES).family
#: Header names that the parser accepts.
TOKEN = "!#$&'*+.^_`|~-"
text = st.text(min_size=0, max_size=20)


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """An identity header in a spelling that a backend might accept."""
    name = draw(st.sampled_from([*NAMES.all, HEADER, *DEFAULT_FAMILY])) + draw(st.sampled_from(["", "x", "-x", "%2fx"]))
    written = "".join(_character(draw, character) for character in name)
    for _ in range(draw(st.integers(0, 2))):
        written = "".join(quote(c) if c == "%" and draw(st.booleans()) else c for c in written)
    return written.lower()  # as the parser returns names


def _character(draw: st.DrawFn, character: str) -> str:
    code = f"{ord(character):02x}"
    ways = [character, character.upper(), f"%{code}", f"%{code.upper()}", f"%25{code}"]
    if character == "-":
        ways += list(TOKEN)
    return draw(st.sampled_from(ways))


@settings(max_examples=drawn(150), deadline=None)
@given(st.lists(spellings(), min_size=1, max_size=4), st.lists(st.sampled_from(["accept", "user-agent", "x-real-ip"])))
def test_no_spelling_of_an_identity_header_survives(bad: list[str], good: list[str]) -> None:
    headers = {name: ["1", "2"] for name in (*bad, *good)}
    assert {name for name, _ in passed_on(headers, FAMILY)} == set(good)
    assert set(RequestHeaders(NAMES).sent(headers)) == set(bad)


@settings(max_examples=drawn(50), deadline=None)
@given(st.text("abcdefghijklmnopqrstuvwyz0123456789-", min_size=1, max_size=30))
def test_what_is_none_goes_on(name: str) -> None:
    if name.startswith(("x-", "atoll")) or name in {"te", "via"}:
        return
    pairs = passed_on({name: ["a", "b"]}, FAMILY)
    assert pairs in ([(name, "a"), (name, "b")], []), "headers of the hop alone stay"


claims = st.builds(
    AssertionClaims,
    user=text.filter(bool),
    groups=st.lists(text, max_size=4).map(tuple),
    uid=text,
    extra=st.dictionaries(text, st.lists(text, max_size=3).map(tuple), max_size=3),
    cluster=text,
    iat=st.integers(0, 2**40),
    exp=st.integers(0, 2**40),
)


@settings(max_examples=drawn(50), deadline=None)
@given(claims)
def test_whatever_was_said_is_what_is_read(said: AssertionClaims) -> None:
    assert verify(sign(said, KEY), PUBLIC) == said


SAID = sign(AssertionClaims("dave", ("devs",), "u", {"a": ("b",)}, "1here", 1000, 1000 + LIFE_S), KEY)


@settings(max_examples=drawn(300), deadline=None)
@given(st.integers(0, len(SAID) - 1), st.integers(0, 6))
def test_an_assertion_with_one_bit_altered_is_none(place: int, bit: int) -> None:
    altered = SAID[:place] + chr(ord(SAID[place]) ^ (1 << bit)) + SAID[place + 1 :]
    with pytest.raises(TokenError):
        verify(altered, PUBLIC)


@settings(max_examples=drawn(100), deadline=None)
@given(st.integers(0, len(SAID)), st.text(min_size=1, max_size=5), st.integers(0, 5))
def test_an_assertion_with_something_put_in_or_left_out_is_none(place: int, more: str, less: int) -> None:
    changed = SAID[:place] + more + SAID[place + less :]
    if changed == SAID:
        return
    with pytest.raises(TokenError):
        verify(changed, PUBLIC)


users = st.builds(
    User,
    name=text.filter(bool),
    groups=st.lists(text, max_size=3).map(tuple),
    uid=text,
    extra=st.dictionaries(text, st.lists(text, max_size=2).map(tuple), max_size=2),
)


@settings(max_examples=drawn(30), deadline=None)
@given(st.lists(st.tuples(users, st.sampled_from(["1a", "1b", ""])), min_size=1, max_size=6))
def test_caches_never_give_one_user_or_cluster_for_another(requests: list[tuple[User, str]]) -> None:
    now = [1000.0]
    maker, reader = AssertionSigner(KEY, lambda: now[0]), AssertionVerifier(lambda: now[0])
    for user, cluster in requests * 2:
        now[0] += 3
        said = maker.assertion(user, cluster)
        found = reader.user([said], PUBLIC, b"", cluster)
        assert msgspec.to_builtins(found) == msgspec.to_builtins(user)
        other = "1a" if cluster != "1a" else "1b"
        with pytest.raises(TokenError):
            reader.user([said], PUBLIC, b"", other)
