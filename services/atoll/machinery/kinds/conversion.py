"""Conversion between the versions of a definition, as a value that kinds carry.

`custom` makes it from the spec of a definition; the API server's conversion package executes it. Strategy None converts
here and at once: another apiVersion, then pruning and defaulting by the schema of that version. A webhook needs I/O and
the rules of an APIConversion need time, so their hooks raise `Unconverted`, and the caller that may wait converts the
object and retries. Invariant: an object that needs conversion is never served, compared or stored unconverted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeAlias

import msgspec

from atoll.machinery.kinds.apiconversion import Converter
from atoll.machinery.kinds.checks import mapping, strings, text
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.objects import Object, decode, encode_json

#: Completes the conversion to a version in place: sets apiVersion, prunes and defaults; returns the object.
Finish: TypeAlias = Callable[[Object], Object]
#: Converts an object to a new object of an apiVersion.
Convert: TypeAlias = Callable[[Object, str], Object]


class Webhook(msgspec.Struct, frozen=True):
    """The conversion webhook. An empty `url` means a service reference, which has no endpoint without nodes.

    `reviews` are the versions of ConversionReview that it accepts, in its order of preference.
    """

    url: str
    ca_pem: bytes
    reviews: tuple[str, ...]


class Conversion(msgspec.Struct, frozen=True):
    """Conversion of all versions of one definition by a webhook or by rules. `mark` identifies the content of both."""

    by: Webhook | Converter
    mark: str
    kind: str
    #: The apiVersion of stored objects.
    storage: str
    #: Whether objects may be stored by an earlier schema of their version.
    revised: bool
    #: By apiVersion, for all versions, served or not.
    finish: Mapping[str, Finish]


class Unconverted(MissingAnswer):
    """An object must be converted before the operation can continue. `value` is its JSON."""

    def __init__(self, value: bytes, api_version: str) -> None:
        super().__init__(api_version)
        self.value, self.api_version = value, api_version


def webhook_of(spec: Object) -> Webhook | None:
    """Return the webhook of a definition with several versions; None if no webhook ever converts."""
    conversion = mapping(spec, "conversion")
    versions = spec.get("versions")
    if conversion.get("strategy") != "Webhook" or not isinstance(versions, list) or len(versions) < 2:
        return None
    client = mapping(conversion, "webhook", "clientConfig")
    try:
        ca_pem = base64.b64decode(text(client, "caBundle"), validate=True)
    except (binascii.Error, ValueError):
        # Definitions are validated when written; an older invalid bundle verifies no server.
        ca_pem = b"invalid"
    reviews = strings(mapping(conversion, "webhook"), "conversionReviewVersions")
    return Webhook(text(client, "url"), ca_pem, tuple(reviews))


def convert_none(finish: Mapping[str, Finish]) -> Convert:
    """Return the conversion of strategy None."""
    return lambda obj, api_version: finish[api_version](decode(encode_json(obj)))


def raise_unconverted(obj: Object, api_version: str) -> NoReturn:
    """Conversion by a webhook or by rules, before the result is available. Raises Unconverted."""
    raise Unconverted(encode_json(obj), api_version)


def from_stored(api_version: str, finish: Finish, convert: Convert) -> Callable[[Object], Object]:
    """Return the conversion from the stored form by a webhook or by rules; an object in the version is unchanged."""
    return lambda obj: finish(obj) if obj.get("apiVersion") == api_version else convert(obj, api_version)
