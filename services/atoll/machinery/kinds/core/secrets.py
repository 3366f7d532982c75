"""Secrets: named byte values; the type determines the required keys.

`stringData` is write-only: it is merged into `data` before any check.
"""

from __future__ import annotations

import base64

import msgspec

from atoll.machinery.kinds.binary import decoded, decoded_size, join_lines
from atoll.machinery.kinds.checks import ensure, immutable, mapping, text
from atoll.machinery.kinds.core.data import DATA_SIZE, immutability_errors, key_errors
from atoll.machinery.kinds.kind import Column, Kind
from atoll.machinery.kinds.native import AGE, NAME, age_cell, builtin, name_cell, row, text_cell
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid, required, too_long

OPAQUE = "Opaque"
SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
#: On a service account token: the name of its service account.
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"

_JSON_KEYS = {"kubernetes.io/dockercfg": ".dockercfg", "kubernetes.io/dockerconfigjson": ".dockerconfigjson"}
_TLS_KEYS = ("tls.crt", "tls.key")
_LOGIN_KEYS = ("username", "password")
_SSH_KEY = "ssh-privatekey"


def _prepare_create(obj: Object) -> None:
    _merge_string_data(obj)
    if not obj.get("type"):
        obj["type"] = OPAQUE


def _prepare_update(obj: Object, old: Object) -> None:
    _merge_string_data(obj)
    # An update without a type keeps the old one.
    if not obj.get("type"):
        obj["type"] = old.get("type", OPAQUE)


def _merge_string_data(obj: Object) -> None:
    """Move texts from stringData into data, replacing values of the same key."""
    join_lines(mapping(obj, "data"))
    texts = obj.get("stringData")
    if texts is None:
        obj.pop("stringData", None)
        return
    if not isinstance(texts, dict) or not all(isinstance(value, str | None) for value in texts.values()):
        return
    del obj["stringData"]
    if texts:
        data = ensure(obj, "data")
        for key, value in texts.items():
            data[key] = base64.b64encode((value or "").encode()).decode()


def _validate(obj: Object) -> list[FieldError]:
    data = mapping(obj, "data")
    errors = key_errors(data, "data")
    if decoded_size(data) > DATA_SIZE:
        errors.append(too_long("data", DATA_SIZE))
    return errors + _type_errors(obj, text(obj, "type"), data)


def _type_errors(obj: Object, type_: str, data: Object) -> list[FieldError]:
    """Return the errors of the keys that the secret's type requires."""
    if type_ == SERVICE_ACCOUNT_TOKEN and not text(obj, "metadata", "annotations", SERVICE_ACCOUNT_NAME):
        return [required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]")]
    if type_ in _JSON_KEYS:
        return _json_errors(data, _JSON_KEYS[type_])
    if type_ == "kubernetes.io/basic-auth" and not any(key in data for key in _LOGIN_KEYS):
        return [required(f"data[{key}]") for key in _LOGIN_KEYS]
    if type_ == "kubernetes.io/ssh-auth" and not data.get(_SSH_KEY):
        return [required(f"data[{_SSH_KEY}]")]
    if type_ == "kubernetes.io/tls":
        return [required(f"data[{key}]") for key in _TLS_KEYS if key not in data]
    return []


def _json_errors(data: Object, key: str) -> list[FieldError]:
    if key not in data:
        return [required(f"data[{key}]")]
    try:
        msgspec.json.decode(decoded(data[key]) or b"", type=dict)
    except (msgspec.MsgspecError, RecursionError):
        # The text of the exception may contain the secret.
        return [invalid(f"data[{key}]", "<secret contents redacted>", "the value is not a JSON object")]
    return []


def _validate_update(obj: Object, old: Object) -> list[FieldError]:
    return [
        *immutable("type", obj.get("type"), old.get("type")),
        *immutability_errors(obj, old, ("data",)),
        *_validate(obj),
    ]


def _count_cell(obj: Object, now_s: float) -> object:
    return len(mapping(obj, "data"))


SECRETS = Kind(
    **builtin("", "Secret", "secrets"),
    unconditional_update=True,
    columns=(
        NAME,
        Column("Type", description="What the secret is for."),
        Column("Data", description="How many values it holds."),
        AGE,
    ),
    cells=row(name_cell, text_cell("type"), _count_cell, age_cell),
    field_labels={"type": lambda obj: text(obj, "type")},
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
)
