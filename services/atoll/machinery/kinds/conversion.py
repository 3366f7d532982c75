"""How objects of one definition get from version to version, as a value that kinds carry.

`custom` makes it from a definition's spec; the API server's conversion package acts on it. Strategy None is done here
and at once: another apiVersion, then pruned and defaulted by that version's schema. Strategy Webhook needs I/O, and the
rules of an APIConversion need time, so their hooks only say what is missing (`Unconverted`), and whoever may wait
fetches it. Invariant: an object that has to be converted is never served, compared or stored unconverted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeAlias

import msgspec

from atoll.machinery.kinds.apiconversion import Converter
from atoll.machinery.kinds.checks import mapping, strings, text
from atoll.machinery.meta.objects import Object, decode, encode_json

#: Makes an object one of a version: sets apiVersion, prunes and defaults, in place; gives the object.
Finish: TypeAlias = Callable[[Object], Object]
#: An object and an apiVersion to a new object in that version.
Convert: TypeAlias = Callable[[Object, str], Object]


class Webhook(msgspec.Struct, frozen=True):
    """Who converts. An empty `url` stands for a service reference, which leads nowhere in a cell without nodes.

    `reviews` are the versions of ConversionReview it takes, in its order of preference.
    """

    url: str
    ca_pem: bytes
    reviews: tuple[str, ...]


class Conversion(msgspec.Struct, frozen=True):
    """Conversion by a webhook or by rules, of all versions of one definition. `mark` tells contents of both apart."""

    by: Webhook | Converter
    mark: str
    kind: str
    #: apiVersion that objects are written in.
    storage: str
    #: Objects may have been stored under another schema of their version.
    revised: bool
    #: By apiVersion, of every version, served or not.
    finish: Mapping[str, Finish]


class Unconverted(Exception):
    """An object has to be converted before this can go on. `value` is its JSON."""

    def __init__(self, value: bytes, api_version: str) -> None:
        super().__init__(api_version)
        self.value, self.api_version = value, api_version


def webhook_of(spec: Object) -> Webhook | None:
    """The webhook of a definition with several versions; None where nothing ever has to be converted by one."""
    conversion = mapping(spec, "conversion")
    versions = spec.get("versions")
    if conversion.get("strategy") != "Webhook" or not isinstance(versions, list) or len(versions) < 2:
        return None
    client = mapping(conversion, "webhook", "clientConfig")
    try:
        ca_pem = base64.b64decode(text(client, "caBundle"), validate=True)
    except (binascii.Error, ValueError):
        # Definitions are judged when written; what slipped through earlier verifies nobody.
        ca_pem = b"invalid"
    reviews = strings(mapping(conversion, "webhook"), "conversionReviewVersions")
    return Webhook(text(client, "url"), ca_pem, tuple(reviews))


def convert_none(finish: Mapping[str, Finish]) -> Convert:
    """Conversion of strategy None."""
    return lambda obj, api_version: finish[api_version](decode(encode_json(obj)))


def raise_unconverted(obj: Object, api_version: str) -> NoReturn:
    """Conversion that takes its time where nothing was fetched yet. Raises Unconverted."""
    raise Unconverted(encode_json(obj), api_version)


def from_stored(api_version: str, finish: Finish, convert: Convert) -> Callable[[Object], Object]:
    """The stored form to a version where conversion takes its time: what is in it already needs none."""
    return lambda obj: finish(obj) if obj.get("apiVersion") == api_version else convert(obj, api_version)
