"""Kubernetes' named string formats, with the messages of Kubernetes' validation.

Called by `libraries.format`, and by `libraries.authorizer` for the names of service accounts. Each format has the size
of the pattern that it is charged for, which differs from the pattern that it is checked by for some.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from atoll.machinery.cel.libraries.values import urls

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = f"{_LABEL}(\\.{_LABEL})*"
_DNS1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_UUID = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_TIME = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"

_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_dns1035 = re.compile(_DNS1035).fullmatch
_is_key = re.compile(_KEY).fullmatch
_is_value = re.compile(_VALUE).fullmatch
_is_uuid = re.compile(_UUID.replace("^", "").replace("$", "")).fullmatch
_is_time = re.compile(_TIME.strip("^$")).fullmatch
_is_base64 = re.compile("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})").fullmatch
_is_day = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})").fullmatch

_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_DNS1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
)
_KEY_WORDS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_MAX_LABEL: Final = 63
_MAX_SUBDOMAIN: Final = 253

#: Returns the problems of a text; none for a valid one.
Check = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True, eq=False)
class NamedFormat:
    """A format. `name` identifies it; `pattern_size` determines its cost."""

    name: str
    check: Check
    pattern_size: int


def _mismatch(words: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{words} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(text: str, limit: int, unit: str = "characters") -> list[str]:
    # Kubernetes counts bytes under either name.
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []


def label_problems(text: str) -> list[str]:
    """Return the problems of a text as an RFC 1123 label, the form of namespace names."""
    problems = _too_long(text, _MAX_LABEL)
    if not _is_label(text):
        is_dotted = _is_subdomain(text)
        mismatch = _mismatch(_LABEL_WORDS, _LABEL, "my-name", "123-abc")
        problems.append("must not contain dots" if is_dotted else mismatch)
    return problems


def subdomain_problems(text: str) -> list[str]:
    """Return the problems of a text as an RFC 1123 subdomain, the form of service account names."""
    problems = _too_long(text, _MAX_SUBDOMAIN)
    if not _is_subdomain(text):
        problems.append(_mismatch(_SUBDOMAIN_WORDS, _SUBDOMAIN, "example.com"))
    return problems


def _dns1035_problems(text: str) -> list[str]:
    problems = _too_long(text, _MAX_LABEL)
    if not _is_dns1035(text):
        problems.append(_mismatch(_DNS1035_WORDS, _DNS1035, "my-name", "abc-123"))
    return problems


def _value_problems(text: str) -> list[str]:
    problems = _too_long(text, _MAX_LABEL, "bytes")
    if not _is_value(text):
        problems.append(_mismatch(_VALUE_WORDS, _VALUE, "MyValue", "my_value", "12345"))
    return problems


def _key_problems(text: str) -> list[str]:
    mismatch = _mismatch(_KEY_WORDS, _KEY, "MyName", "my.name", "123-abc")
    prefix, slash, name = text.partition("/")
    if "/" in name:
        where = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {mismatch} {where}"]
    problems: list[str] = []
    if not slash:
        name = prefix
    elif not prefix:
        problems.append("prefix part must be non-empty")
    else:
        problems += [f"prefix part {problem}" for problem in subdomain_problems(prefix)]
    if not name:
        problems.append("name part must be non-empty")
    problems += [f"name part {problem}" for problem in _too_long(name, _MAX_LABEL, "bytes")]
    if not _is_key(name):
        problems.append(f"name part {mismatch}")
    return problems


def _prefix(check: Check) -> Check:
    """Return the check of a generateName: it may end in a dash.

    Of a text of more than one character with a dash at the end, Kubernetes replaces the last two characters by an `a`.
    """

    def problems(text: str) -> list[str]:
        return check(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)

    return problems


def _uri_problems(text: str) -> list[str]:
    try:
        urls.check_request(text)
    except urls.URLError as error:
        return [str(error)]
    return []


def _check(is_valid: Callable[[str], object], problem: str) -> Check:
    return lambda text: [] if is_valid(text) else [problem]


def _is_date(text: str) -> bool:
    match = _is_day(text)
    if match is None:
        return False
    try:
        # Go accepts the year 0, which is a leap year like 4.
        date(int(match[1]) or 4, int(match[2]), int(match[3]))
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    # Text after a second `t` is ignored.
    parts = text.lower().split("t")
    if len(parts) < 2 or not _is_date(parts[0]):
        return False
    match = _is_time(parts[1])
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


#: By their name in expressions. The sizes of `byte` and `uri` are those of patterns that are not used.
FORMATS: Final[Mapping[str, NamedFormat]] = {
    "dns1123Label": NamedFormat("DNS1123Label", label_problems, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", subdomain_problems, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _dns1035_problems, 30),
    "qualifiedName": NamedFormat("QualifiedName", _key_problems, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix(label_problems), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix(subdomain_problems), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix(_dns1035_problems), 30),
    "labelValue": NamedFormat("LabelValue", _value_problems, 40),
    "uri": NamedFormat("URI", _uri_problems, 1103),
    "uuid": NamedFormat("uuid", _check(_is_uuid, "does not match the UUID format"), len(_UUID)),
    "byte": NamedFormat("byte", _check(_is_base64, "invalid base64"), 84),
    "date": NamedFormat("date", _check(_is_date, "invalid date"), len(_TIME)),
    "datetime": NamedFormat("datetime", _check(_is_datetime, "invalid datetime"), len(_TIME)),
}
