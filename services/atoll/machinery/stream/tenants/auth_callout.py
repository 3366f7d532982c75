"""A server's question who a client is, and the answer.

nats-server asks when a client connects that its configuration does not know: it sends the client's credential,
encrypted, and takes for it a signed user with an account, permissions and an end. `callout_service` listens; whether a
token is good is its caller's to say. Invariant: an answer admits one key of one connection on one server, to the
tenants' account alone, and until the given time.
"""

from __future__ import annotations

import base64
import secrets

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.process import ed25519
from atoll.machinery.stream.permissions import Permissions
from atoll.machinery.stream.tenants.claims import Box, InvalidClaims, Issuer, read
from atoll.machinery.stream.tenants.subscriber_permissions import TENANTS

_AUDIENCE = "nats-authorization-request"
#: Subscriptions that a connection may have, and the longest message that it may send: a pull or an acknowledgement.
_MAX_SUBSCRIPTIONS, _MAX_MESSAGE_BYTES = 64, 4096


class CalloutKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The secrets that all gateways of a server share: they sign users, open its questions, and make names."""

    issuer: str
    box: str
    names: str


def make_keys() -> CalloutKeys:
    """New secrets."""
    box, names = (base64.b64encode(secrets.token_bytes(32)).decode() for _ in range(2))
    return CalloutKeys(ed25519.make_secret(), box, names)


class ConnectRequest(msgspec.Struct, frozen=True):
    """A client that connects: its key, which the server made for it, the asking server, and its token."""

    user_key: str
    server: str
    server_box: str
    client_id: int
    token: str


class Admission(msgspec.Struct, frozen=True):
    """What a client may do, until when, and the name by which servers know its connections; empty: none."""

    permissions: Permissions
    expires_at_s: int
    connection: str = ""


class _Server(msgspec.Struct, frozen=True):
    id: str
    xkey: str


class _Client(msgspec.Struct, frozen=True):
    id: int


class _Options(msgspec.Struct, frozen=True):
    auth_token: str = ""


class _Question(msgspec.Struct, frozen=True):
    server_id: _Server
    user_nkey: str
    client_info: _Client
    connect_opts: _Options
    type: str


class _Claims(msgspec.Struct, frozen=True):
    iss: str
    aud: str
    nats: _Question


class Answerer:
    """Opens questions and makes answers, with the keys of the gateways."""

    def __init__(self, keys: CalloutKeys) -> None:
        """Raises ValueError for keys that are none."""
        self._issuer, self._box = Issuer(keys.issuer), Box(keys.box)

    @property
    def configuration(self) -> Object:
        """The public halves, as the server's configuration has them."""
        return {"issuer": self._issuer.text, "xkey": self._box.text}

    def open(self, data: bytes, server_box: str) -> ConnectRequest:
        """Read a question. Raises InvalidClaims for what no server asked of these keys."""
        try:
            claims = msgspec.convert(read(self._box.open(data, server_box).decode()), _Claims)
        except (msgspec.ValidationError, UnicodeDecodeError) as error:
            raise InvalidClaims("not a question who a client is") from error
        asked = claims.nats
        if claims.aud != _AUDIENCE or asked.type != "authorization_request":
            raise InvalidClaims("for another purpose")
        if (claims.iss, server_box) != (asked.server_id.id, asked.server_id.xkey):
            raise InvalidClaims("not from the server that it names")
        token, client = asked.connect_opts.auth_token, asked.client_info.id
        return ConnectRequest(asked.user_nkey, asked.server_id.id, server_box, client, token)

    def admit(self, request: ConnectRequest, admission: Admission) -> bytes:
        """The answer that lets the client in."""
        permissions = admission.permissions
        user: Object = {
            "type": "user",
            "version": 2,
            "pub": {"allow": list(permissions.publish)},
            "sub": {"allow": list(permissions.subscribe)},
            "subs": _MAX_SUBSCRIPTIONS,
            "data": -1,
            "payload": _MAX_MESSAGE_BYTES,
            "allowed_connection_types": ["STANDARD"],
        }
        about = (admission.expires_at_s, admission.connection)
        return self._answer(request, {"jwt": self._issuer.sign(request.user_key, TENANTS, user, *about)})

    def refuse(self, request: ConnectRequest, reason: str) -> bytes:
        """The answer that turns the client away. The reason goes to the server's log, not to the client."""
        return self._answer(request, {"error": reason})

    def _answer(self, request: ConnectRequest, content: Object) -> bytes:
        nats = {**content, "type": "authorization_response", "version": 2}
        answer = self._issuer.sign(request.user_key, request.server, nats)
        return self._box.seal(answer.encode(), request.server_box)
