"""What the view asks the keeper of subscriptions, and what it answers, as bytes that may cross a socket.

The keeper runs in the writer's process alone; with API workers their requests come over the workers' socket. Invariant:
the user in a command is who the pipeline authenticated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import msgspec

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.user import User

Verb: TypeAlias = Literal["create", "get", "list", "delete", "token"]
#: Takes an encoded command, returns an encoded answer.
Ask: TypeAlias = Callable[[bytes], Awaitable[bytes]]


class Command(msgspec.Struct, frozen=True):
    """A request about subscriptions in one cluster. `expires_s`: when the credential ends, 0 for never."""

    verb: Verb
    cluster: str
    user: User
    expires_s: float = 0.0
    name: str = ""
    body: bytes = b""


class CommandAnswer(msgspec.Struct, frozen=True):
    """The answer: an HTTP status and a JSON document."""

    code: int
    body: bytes
    retry_after_s: int = 0


_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(Command)
_answers = msgspec.msgpack.Decoder(CommandAnswer)


def encode(message: Command | CommandAnswer) -> bytes:
    """Encode a message."""
    return _encoder.encode(message)


def decode_command(data: bytes) -> Command:
    """Decode a command of a process of the same shard."""
    return _commands.decode(data)


def decode_answer(data: bytes) -> CommandAnswer:
    """Decode an answer of the same shard's keeper."""
    return _answers.decode(data)


def answer(code: int, document: msgspec.Struct) -> CommandAnswer:
    """Return a document as an answer."""
    return CommandAnswer(code, msgspec.json.encode(document) + b"\n")


def refusal(error: ApiError) -> CommandAnswer:
    """Return an error as an answer."""
    return CommandAnswer(error.code, encode_json(error.status()) + b"\n", error.details.retry_after_s)
