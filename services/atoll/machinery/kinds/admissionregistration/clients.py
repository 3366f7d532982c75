"""Checks of the clientConfig of a webhook."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from atoll.machinery.kinds.binary import decoded
from atoll.machinery.kinds.checks import invalid_values, mapping, number, text
from atoll.machinery.meta.labels import dns_subdomain_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.process.certificate_requests import certificates_problem
from atoll.machinery.schema.fielderrors import invalid, required

_FORM = "; desired format: https://host[/path]"


def client_errors(client: Object, field: str) -> list[FieldError]:
    """Return the errors of a clientConfig: exactly one of URL and service, well formed, with certificates in PEM."""
    has_url, has_service = client.get("url") is not None, client.get("service") is not None
    if has_url == has_service:
        errors = [required(field, "exactly one of url or service is required")]
    elif has_url:
        errors = list(_url_errors(text(client, "url"), f"{field}.url"))
    else:
        errors = list(_service_errors(mapping(client, "service"), f"{field}.service"))
    bundle = text(client, "caBundle")
    if bundle and certificates_problem(decoded(bundle) or b""):
        detail = "unable to load root certificates: unable to parse bytes as PEM block"
        errors.append(invalid(f"{field}.caBundle", "<certificate data>", detail))
    return errors


def _url_errors(url: str, field: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        yield required(field, f"url must be a valid URL: {error}{_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(field, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    if not host:
        yield invalid(field, "", f"host must be specified{_FORM}")
    if "@" in parts.netloc:
        yield invalid(field, "<redacted>", "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(field, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(field, parts.query, "query parameters are not permitted in the URL")


def _service_errors(service: Object, field: str) -> Iterator[FieldError]:
    for name in ("name", "namespace"):
        if service.get(name) == "":
            yield required(f"{field}.{name}")
    port = number(service, "port")
    if port is not None and not 1 <= port <= 65_535:
        yield invalid(f"{field}.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    yield from _path_errors(text(service, "path"), f"{field}.path")


def _path_errors(path: str, field: str) -> Iterator[FieldError]:
    if path in ("", "/"):
        return
    if not path.startswith("/"):
        yield invalid(field, path, "must start with a '/'")
        return
    # A trailing slash adds no segment, except in `//`.
    segments = path[1:].removesuffix("/").split("/") if path != "//" else [""]
    for index, segment in enumerate(segments):
        if not segment:
            yield invalid(field, path, f"segment[{index}] may not be empty")
        else:
            problems = (f"segment[{index}]: {problem}" for problem in dns_subdomain_errors(segment))
            yield from invalid_values(field, path, problems)
