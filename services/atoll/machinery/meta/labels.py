"""Syntax of names, label keys and label values, with the error texts of Kubernetes.

Metadata checks, selectors and CRD checks call these; every function returns the list of errors, empty for
valid text. Lengths count UTF-8 bytes, although the texts say characters: of valid text, which is ASCII, both are the
same.
"""

from __future__ import annotations

import re
from functools import lru_cache

SUBDOMAIN_SIZE = 253
LABEL_SIZE = 63
_KEY_SIZE = SUBDOMAIN_SIZE + 1 + LABEL_SIZE

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = _LABEL + r"(\." + _LABEL + ")*"
_DNS_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY_NAME})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"

_LABEL_RE = re.compile(_LABEL + r"\Z")
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN + r"\Z")
_DNS_1035_RE = re.compile(_DNS_1035 + r"\Z")
_KEY_NAME_RE = re.compile(_KEY_NAME + r"\Z")
_VALUE_RE = re.compile(_VALUE + r"\Z")
_CONFIG_KEY_RE = re.compile(_CONFIG_KEY + r"\Z")
_LABEL_KEY_RE = re.compile(rf"(?:(?P<prefix>{_SUBDOMAIN})/)?(?P<name>{_KEY_NAME})\Z")


def _shape(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


_LABEL_TEXT = _shape(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_TEXT = _shape(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_DNS_1035_TEXT = _shape(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character",
    _DNS_1035,
    "my-name",
    "abc-123",
)
_KEY_TEXT = _shape(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _KEY_NAME,
    "MyName",
    "my.name",
    "123-abc",
)
_VALUE_TEXT = _shape(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character",
    _VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_CONFIG_KEY_TEXT = _shape(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)


def _is_long(text: str, size: int) -> bool:
    return len(text) > size or len(text.encode()) > size


def _too_long(size: int) -> str:
    return f"must be no more than {size} characters"


def dns_label_errors(text: str) -> list[str]:
    """What keeps text from being a DNS-1123 label (names of namespaces, parts of paths)."""
    if len(text) <= LABEL_SIZE and _LABEL_RE.match(text):
        return []
    errors = [_too_long(LABEL_SIZE)] if _is_long(text, LABEL_SIZE) else []
    if not _LABEL_RE.match(text):
        errors.append("must not contain dots" if _SUBDOMAIN_RE.match(text) else _LABEL_TEXT)
    return errors


def dns_subdomain_errors(text: str) -> list[str]:
    """What keeps text from being a DNS-1123 subdomain (names of most objects, API groups)."""
    if len(text) <= SUBDOMAIN_SIZE and _SUBDOMAIN_RE.match(text):
        return []
    errors = [_too_long(SUBDOMAIN_SIZE)] if _is_long(text, SUBDOMAIN_SIZE) else []
    if not _SUBDOMAIN_RE.match(text):
        errors.append(_SUBDOMAIN_TEXT)
    return errors


def dns_1035_label_errors(text: str) -> list[str]:
    """What keeps text from being a DNS-1035 label (API versions, plural names)."""
    errors = [_too_long(LABEL_SIZE)] if _is_long(text, LABEL_SIZE) else []
    if not _DNS_1035_RE.match(text):
        errors.append(_DNS_1035_TEXT)
    return errors


def path_segment_errors(text: str) -> list[str]:
    """What keeps text from being one segment of a URL path (names of RBAC objects may hold colons)."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{character}'" for character in ("/", "%") if character in text]


def label_key_errors(text: str) -> list[str]:
    """What keeps text from being a label key, which Kubernetes also calls a qualified name."""
    if len(text) <= _KEY_SIZE and _is_label_key(text):
        return []
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_KEY_TEXT} {tail}"]
    errors = _prefix_errors(prefix) if slash else []
    if not name:
        errors.append("name part must be non-empty")
    elif _is_long(name, LABEL_SIZE):
        errors.append(f"name part must be no more than {LABEL_SIZE} bytes")
    if not _KEY_NAME_RE.match(name):
        errors.append(f"name part {_KEY_TEXT}")
    return errors


@lru_cache(maxsize=2048)
def _is_label_key(text: str) -> bool:
    """Whether text is a label key. Clients use few: cached for up to _KEY_SIZE characters each."""
    found = _LABEL_KEY_RE.match(text)
    return found is not None and len(found["prefix"] or "") <= SUBDOMAIN_SIZE and len(found["name"]) <= LABEL_SIZE


def _prefix_errors(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    errors = [f"must be no more than {SUBDOMAIN_SIZE} bytes"] if _is_long(prefix, SUBDOMAIN_SIZE) else []
    if not _SUBDOMAIN_RE.match(prefix):
        errors.append(_SUBDOMAIN_TEXT)
    return [f"prefix part {error}" for error in errors]


def label_value_errors(text: str) -> list[str]:
    """What keeps text from being the value of a label; it may be empty."""
    if len(text) <= LABEL_SIZE and _VALUE_RE.match(text):
        return []
    errors = [f"must be no more than {LABEL_SIZE} bytes"] if _is_long(text, LABEL_SIZE) else []
    if not _VALUE_RE.match(text):
        errors.append(_VALUE_TEXT)
    return errors


def config_key_errors(text: str) -> list[str]:
    """What keeps text from being a key of a ConfigMap or Secret."""
    if len(text) <= SUBDOMAIN_SIZE and _CONFIG_KEY_RE.match(text) and text != "." and not text.startswith(".."):
        return []
    errors = [_too_long(SUBDOMAIN_SIZE)] if _is_long(text, SUBDOMAIN_SIZE) else []
    if not _CONFIG_KEY_RE.match(text):
        errors.append(_CONFIG_KEY_TEXT)
    if text in (".", ".."):
        errors.append(f"must not be '{text}'")
    elif text.startswith(".."):
        errors.append("must not start with '..'")
    return errors
