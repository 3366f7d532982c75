"""Validation of `spec.conversion` of definitions: the strategy and its webhook.

`crd` and `apiresourceschema` call it. The webhook is not called here; whether its address is allowed is decided on each
call.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from atoll.machinery.meta import labels
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.process.certificate_requests import certificates_problem
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

_REVIEW_VERSIONS = ("v1", "v1beta1")
_URL_FORM = "; desired format: https://host[/path]"


def conversion_errors(conversion: Any, path: str, *, allow_service: bool) -> list[FieldError]:
    """Validate a conversion, which may be None. `allow_service` is false where a webhook must be a URL."""
    if not isinstance(conversion, dict):
        return []
    strategy = conversion.get("strategy")
    if not strategy:
        return [required(f"{path}.strategy")]
    if strategy not in ("None", "Webhook"):
        return [not_supported(f"{path}.strategy", strategy, ("None", "Webhook"))]
    webhook = conversion.get("webhook")
    if strategy == "None":
        text = "should not be set when strategy is not set to Webhook"
        return [forbidden(f"{path}.webhook", text)] if webhook is not None else []
    return list(_webhook_errors(webhook if isinstance(webhook, dict) else {}, f"{path}.webhook", allow_service))


def _webhook_errors(webhook: Object, path: str, allow_service: bool) -> Iterator[FieldError]:
    at, config = f"{path}.clientConfig", webhook.get("clientConfig")
    if not isinstance(config, dict):
        yield required(at, "required when strategy is set to Webhook")
    else:
        yield from bundle_errors(config.get("caBundle"), f"{at}.caBundle")
        url, service = config.get("url"), config.get("service")
        if (url is None) == (service is None):
            yield required(at, "exactly one of url or service is required")
        elif isinstance(url, str):
            yield from _url_errors(url, f"{at}.url")
        elif not allow_service:
            yield forbidden(f"{at}.service", "service references are not supported, use url")
        elif isinstance(service, dict):
            yield from _service_errors(service, f"{at}.service")
    yield from _review_errors(webhook.get("conversionReviewVersions") or [], f"{path}.conversionReviewVersions")


def _url_errors(url: str, path: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not parts.hostname:
        yield invalid(path, "", f"host must be specified{_URL_FORM}")
    if parts.username is not None:
        yield invalid(path, parts.username, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def bundle_errors(bundle: Any, path: str) -> Iterator[FieldError]:
    """Validate a caBundle. On update the caller ignores errors that the old object had."""
    if not isinstance(bundle, str) or not bundle:
        return
    try:
        problem = certificates_problem(base64.b64decode(bundle, validate=True))
    except (binascii.Error, ValueError):
        problem = "not base64"
    if problem:
        text = "unable to load root certificates: unable to parse bytes as PEM block"
        yield invalid(path, "<certificate data>", text)


def _service_errors(service: Object, path: str) -> Iterator[FieldError]:
    for name in ("name", "namespace"):
        if not service.get(name):
            yield required(f"{path}.{name}")
    port = service.get("port", 443)
    if not isinstance(port, int) or not 1 <= port <= 65535:
        yield invalid(f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    route = service.get("path")
    if isinstance(route, str) and route not in ("", "/"):
        yield from _path_errors(route, f"{path}.path")


def _path_errors(route: str, path: str) -> Iterator[FieldError]:
    if route == "//":
        yield invalid(path, route, "segment[0] may not be empty")
        return
    if not route.startswith("/"):
        yield invalid(path, route, "must start with a '/'")
    for index, step in enumerate(route[1:].removesuffix("/").split("/")):
        problems = labels.dns_subdomain_errors(step) if step else []
        yield from (invalid(path, route, f"segment[{index}]: {problem}") for problem in problems)
        if not step:
            yield invalid(path, route, f"segment[{index}] may not be empty")


def _review_errors(versions: Any, path: str) -> Iterator[FieldError]:
    if not isinstance(versions, list) or not versions:
        yield required(path)
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid(f"{path}[{index}]", version, "duplicate version")
        elif isinstance(version, str):
            problems = labels.dns_1035_label_errors(version)
            yield from (invalid(f"{path}[{index}]", version, problem) for problem in problems)
    if not set(_REVIEW_VERSIONS) & {version for version in versions if isinstance(version, str)}:
        yield invalid(path, versions, f"must include at least one of {', '.join(_REVIEW_VERSIONS)}")
