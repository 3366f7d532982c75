"""Domains with a wildcard, and paths behind a domain."""

from __future__ import annotations

import re

from atoll.machinery.kinds.kubernetes.validation.rules import Errors
from atoll.machinery.meta.labels import SUBDOMAIN_SIZE, dns_label_errors, dns_subdomain_errors
from atoll.machinery.schema.fielderrors import invalid, required

_WILDCARD_PATTERN = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WILDCARD_TEXT = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character "
    f"(e.g. '*.example.com', regex used for validation is '{_WILDCARD_PATTERN}')"
)
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+\Z")
_PATH_TEXT = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')"


def wildcard_errors(host: str) -> list[str]:
    """Return what keeps a text from being a domain that begins with `*.`."""
    errors = [f"must be no more than {SUBDOMAIN_SIZE} characters"] if len(host.encode()) > SUBDOMAIN_SIZE else []
    is_valid = host.startswith("*.") and not any("must consist" in each for each in dns_subdomain_errors(host[2:]))
    return errors if is_valid else [*errors, _WILDCARD_TEXT]


def domain_path_errors(name: str, field: str) -> Errors:
    """Check a name such as `example.com/controller`."""
    domain, slash, path = name.partition("/")
    if not name:
        yield required(field)
    elif not slash or not domain or not path:
        yield invalid(field, name, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        for problem in dns_subdomain_errors(domain):
            yield invalid(field, domain, problem)
        if not _PATH.match(path):
            yield invalid(field, path, _PATH_TEXT)


def full_domain_errors(name: str, field: str) -> Errors:
    """Check a full domain, which may end with a dot."""
    domain = name.removesuffix(".")
    if not name:
        yield required(field)
    elif problems := dns_subdomain_errors(domain):
        yield invalid(field, domain, ",".join(problems))
    elif "." not in domain:
        yield invalid(field, domain, "should be a domain with at least two segments separated by dots")
    else:
        for part in domain.split("."):
            if problems := dns_label_errors(part):
                yield invalid(field, part, ",".join(problems))
                return
