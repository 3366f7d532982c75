"""The question of a server who a client is: which are believed, and what the answer says."""

from __future__ import annotations

import base64
import secrets
from typing import Any

import msgspec
import pytest

from atoll.machinery.process import ed25519
from atoll.machinery.stream.permissions import Permissions
from atoll.machinery.stream.tenants.auth_callout import Admission, Answerer, ConnectRequest, make_keys
from atoll.machinery.stream.tenants.claims import Box, InvalidClaims, Issuer, key_bytes, key_text, read
from atoll.machinery.stream.tenants.subscriber_permissions import SLOTS, subscriber_names, subscriber_permissions

KEYS = make_keys()
AUDIENCE = "nats-authorization-request"


def new_box() -> Box:
    return Box(base64.b64encode(secrets.token_bytes(32)).decode())


class Server:
    """Asks as nats-server does."""

    def __init__(self) -> None:
        self.key, self.box = Issuer(ed25519.make_secret()), new_box()

    def question(self, **changes: object) -> dict[str, Any]:
        return {
            "server_id": {"id": self.key.text, "xkey": self.box.text, "name": "x"},
            "user_nkey": "Uclient",
            "client_info": {"id": 7, "host": "127.0.0.1"},
            "connect_opts": {"auth_token": "token", "protocol": 1},
            "type": "authorization_request",
            "version": 2,
            **changes,
        }

    def ask(self, nats: dict[str, Any], audience: str = AUDIENCE, keys: Answerer | None = None) -> bytes:
        signed = self.key.sign("subject", audience, nats)
        return self.box.seal(signed.encode(), str((keys or Answerer(KEYS)).configuration["xkey"]))


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_question_is_read(server: Server) -> None:
    found = Answerer(KEYS).open(server.ask(server.question()), server.box.text)
    assert found == ConnectRequest("Uclient", server.key.text, server.box.text, 7, "token")


def test_a_client_without_a_token_has_an_empty_one(server: Server) -> None:
    asked = server.question(connect_opts={"user": "x", "pass": "y"})
    assert Answerer(KEYS).open(server.ask(asked), server.box.text).token == ""


def test_what_is_for_another_purpose_is_refused(server: Server) -> None:
    for data in (server.ask(server.question(), "other"), server.ask(server.question(type="user"))):
        with pytest.raises(InvalidClaims, match="another purpose"):
            Answerer(KEYS).open(data, server.box.text)


def test_a_question_in_another_servers_name_is_refused(server: Server) -> None:
    other = Server()
    for server_id in ({"id": other.key.text, "xkey": server.box.text}, {"id": server.key.text, "xkey": other.box.text}):
        with pytest.raises(InvalidClaims, match="not from the server"):
            Answerer(KEYS).open(server.ask(server.question(server_id=server_id)), server.box.text)


def test_what_is_not_encrypted_for_these_keys_is_refused(server: Server) -> None:
    plain = server.key.sign("subject", AUDIENCE, server.question()).encode()
    others = server.ask(server.question(), keys=Answerer(make_keys()))
    for data in (plain, b"xkv1" + plain, b"xkv1", b"", others):
        with pytest.raises(InvalidClaims):
            Answerer(KEYS).open(data, server.box.text)
    with pytest.raises(InvalidClaims, match="somebody else"):
        Answerer(KEYS).open(server.ask(server.question()), new_box().text)
    with pytest.raises(InvalidClaims):
        Answerer(KEYS).open(server.ask(server.question()), "")


def test_what_is_no_question_is_refused(server: Server) -> None:
    for nats in ({}, server.question(connect_opts={"auth_token": 1}), server.question(server_id="x")):
        with pytest.raises(InvalidClaims, match="not a question"):
            Answerer(KEYS).open(server.ask(nats), server.box.text)


def test_an_answer_admits_one_client_to_the_tenants_until_its_end(server: Server) -> None:
    answerer = Answerer(KEYS)
    request = answerer.open(server.ask(server.question()), server.box.text)
    sealed = answerer.admit(request, Admission(Permissions(("a",), ("b.>",)), 99, "the-name"))
    answer = read(server.box.open(sealed, str(answerer.configuration["xkey"])).decode())
    assert (answer["aud"], answer["sub"], answer["iss"]) == (
        server.key.text,
        "Uclient",
        answerer.configuration["issuer"],
    )
    user = read(answer["nats"]["jwt"])
    assert (user["aud"], user["sub"], user["exp"], user["name"]) == ("events", "Uclient", 99, "the-name")
    assert (user["nats"]["pub"], user["nats"]["sub"]) == ({"allow": ["a"]}, {"allow": ["b.>"]})
    assert user["nats"]["allowed_connection_types"] == ["STANDARD"]


def test_claims_that_were_changed_or_signed_by_another_are_refused() -> None:
    token, other = Issuer(KEYS.issuer).sign("a", "b", {}), Issuer(ed25519.make_secret())
    head, claims, signature = token.split(".")
    forged = base64.urlsafe_b64encode(msgspec.json.encode({**read(token), "sub": "c"})).decode().rstrip("=")
    theirs = other.sign("a", "b", {}).split(".")[2]
    none = base64.urlsafe_b64encode(b'{"typ":"JWT","alg":"none"}').decode().rstrip("=")
    for text in (f"{head}.{forged}.{signature}", f"{head}.{claims}.{theirs}", f"{none}.{claims}.{signature}"):
        with pytest.raises(InvalidClaims, match="not signed"):
            read(text)
    for text in ("", "a.b", "a.b.c", f"{head}.{claims}", f"{token}.x", f"{head}.!.{signature}"):
        with pytest.raises(InvalidClaims):
            read(text)


def test_a_key_is_read_as_it_was_written_and_a_damaged_one_is_refused() -> None:
    public = secrets.token_bytes(32)
    text = key_text(23 << 3, public)
    assert (text[0], len(text), key_bytes(text)) == ("X", 56, public)
    swapped = text[:10] + ("B" if text[10] != "B" else "C") + text[11:]
    for bad in (swapped, text[:-8], "", "é", "X"):
        with pytest.raises(InvalidClaims):
            key_bytes(bad)


def test_names_follow_from_key_and_identity_and_are_of_one_identity_alone() -> None:
    mine, again = subscriber_names(b"k", "alice"), subscriber_names(b"k", "alice")
    others = [subscriber_names(key, user) for key, user in ((b"k", "alice2"), (b"l", "alice"))]
    assert mine == again
    assert len(set(mine.consumers)) == SLOTS
    for other in others:
        assert not set(mine.consumers) & set(other.consumers)
        assert mine.inbox != other.inbox
    # Who knows the name of a consumer, as it is in each event's reply, does not know the inbox.
    assert mine.consumers[0].rsplit("-", 1)[0] not in mine.inbox


def test_permissions_name_no_more_than_the_slots_and_the_inbox() -> None:
    names = subscriber_names(b"k", "alice")
    found = subscriber_permissions(names)
    assert found.subscribe == (f"{names.inbox}.>",)
    assert len(found.publish) == 3 * SLOTS
    assert all(any(name in subject.split(".") for name in names.consumers) for subject in found.publish)
