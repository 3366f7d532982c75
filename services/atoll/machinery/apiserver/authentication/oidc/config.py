"""AuthenticationConfiguration, and the same content in a WorkspaceAuthenticationConfiguration.

`source` parses the operator's file at start and when it changes, and the objects of tenants. Invariant: a configuration
is validated as a whole before any of it is used: exclusive fields, URLs, expressions. Errors name the field as
Kubernetes does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
import yaml

from atoll.machinery.meta.objects import Object, spec_of

GROUP_VERSIONS = tuple(f"apiserver.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
KIND = "AuthenticationConfiguration"
MAX_ISSUERS, MAX_FILE_BYTES = 64, 1 << 20
#: Size of the rules and mappings in one object of a tenant; they are compiled on the event loop.
MAX_RULES_BYTES = 16 << 10
_EMAIL, _VERIFIED = re.compile(r"\bclaims\.email\b(?!_)"), re.compile(r"\bclaims\.\??email_verified\b")


class Issuer(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An issuer. `certificate_authority` is PEM; empty means the system's CAs."""

    url: str = ""
    discovery_url: str = msgspec.field(default="", name="discoveryURL")
    certificate_authority: str = ""
    audiences: tuple[str, ...] = ()
    audience_match_policy: str = ""


class ClaimValidationRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A claim that must have a value, or an expression over all claims that must be true."""

    claim: str = ""
    required_value: str = ""
    expression: str = ""
    message: str = ""


class PrefixedClaimOrExpression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim with a prefix, or an expression."""

    claim: str = ""
    prefix: str | None = None
    expression: str = ""


class ClaimOrExpression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim, an expression, or neither."""

    claim: str = ""
    expression: str = ""


class ExtraMapping(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A key of the user's extra and the expression of its value."""

    key: str = ""
    value_expression: str = ""


class ClaimMappings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mapping of claims to a user."""

    username: PrefixedClaimOrExpression = PrefixedClaimOrExpression()
    groups: PrefixedClaimOrExpression = PrefixedClaimOrExpression()
    uid: ClaimOrExpression = ClaimOrExpression()
    extra: tuple[ExtraMapping, ...] = ()


class UserValidationRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An expression over the user that must be true."""

    expression: str = ""
    message: str = ""


class JWTAuthenticator(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An issuer and the rules and mappings of its tokens."""

    issuer: Issuer = Issuer()
    claim_validation_rules: tuple[ClaimValidationRule, ...] = ()
    claim_mappings: ClaimMappings = ClaimMappings()
    user_validation_rules: tuple[UserValidationRule, ...] = ()


class InvalidConfig(Exception):
    """An invalid configuration. The text lists the errors by field."""


class _File(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: str = ""
    kind: str = ""
    jwt: tuple[JWTAuthenticator, ...] = ()


def from_file(text: bytes) -> tuple[JWTAuthenticator, ...]:
    """The issuers of an AuthenticationConfiguration in YAML or JSON. Raises InvalidConfig."""
    if len(text) > MAX_FILE_BYTES:
        raise InvalidConfig(f"the file is larger than {MAX_FILE_BYTES} bytes")
    try:
        found = msgspec.convert(yaml.safe_load(text), _File)
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        raise InvalidConfig(str(error)) from error
    if found.api_version not in GROUP_VERSIONS or found.kind != KIND:
        raise InvalidConfig(f"{found.api_version or 'no apiVersion'}, {found.kind or 'no kind'} is not an {KIND}")
    return _checked(found.jwt)


def from_object(obj: Object) -> tuple[JWTAuthenticator, ...]:
    """The issuers of a WorkspaceAuthenticationConfiguration. Raises InvalidConfig."""
    try:
        found = msgspec.convert(spec_of(obj).get("jwt") or [], tuple[JWTAuthenticator, ...])
    except msgspec.ValidationError as error:
        raise InvalidConfig(str(error)) from error
    rules = (msgspec.structs.replace(each, issuer=Issuer()) for each in found)
    if sum(len(msgspec.json.encode(each)) for each in rules) > MAX_RULES_BYTES:
        raise InvalidConfig(f"spec.jwt: Too long: rules and mappings may have {MAX_RULES_BYTES} bytes together")
    return _checked(found)


def _checked(found: tuple[JWTAuthenticator, ...]) -> tuple[JWTAuthenticator, ...]:
    errors = [f"jwt: Too many: {len(found)}: must have at most {MAX_ISSUERS} items"] if len(found) > MAX_ISSUERS else []
    urls: set[str] = set()
    for index, authenticator in enumerate(found):
        path = f"jwt[{index}]"
        errors.extend(f"{path}.{error}" for error in _errors(authenticator))
        for url in filter(None, (authenticator.issuer.url, authenticator.issuer.discovery_url)):
            if url in urls:
                errors.append(f'{path}.issuer: Duplicate value: "{url}"')
            urls.add(url)
    if errors:
        raise InvalidConfig("; ".join(errors))
    return found


def _errors(authenticator: JWTAuthenticator) -> Iterator[str]:
    yield from _issuer_errors(authenticator.issuer)
    for index, rule in enumerate(authenticator.claim_validation_rules):
        yield from _rule_errors(rule, f"claimValidationRules[{index}]")
    mappings = authenticator.claim_mappings
    yield from _prefixed_errors(mappings.username, "claimMappings.username", required=True)
    yield from _prefixed_errors(mappings.groups, "claimMappings.groups", required=False)
    if mappings.uid.claim and mappings.uid.expression:
        yield "claimMappings.uid: Invalid value: claim and expression can't both be set"
    yield from _extra_errors(mappings.extra)
    for index, user_rule in enumerate(authenticator.user_validation_rules):
        if not user_rule.expression:
            yield f"userValidationRules[{index}].expression: Required value: expression is required"
    yield from _email_errors(authenticator)


def _issuer_errors(issuer: Issuer) -> Iterator[str]:
    for name, url in (("url", issuer.url), ("discoveryURL", issuer.discovery_url)):
        if not url:
            if name == "url":
                yield "issuer.url: Required value: URL is required"
            continue
        try:
            parts = urlsplit(url)
            host = parts.hostname
        except ValueError:
            yield f'issuer.{name}: Invalid value: "{url}": not a URL'
            continue
        if parts.scheme != "https" or not host:
            yield f'issuer.{name}: Invalid value: "{url}": URL scheme must be https'
        if parts.username or parts.password or parts.query or parts.fragment:
            yield f"issuer.{name}: Invalid value: URL must not contain a username, password, query or fragment"
    if issuer.url and issuer.url.rstrip("/") == issuer.discovery_url.rstrip("/"):
        yield "issuer.discoveryURL: Invalid value: discoveryURL must be different from URL"
    if not issuer.audiences or not all(issuer.audiences):
        yield "issuer.audiences: Required value: at least one jwt[].issuer.audiences is required, and none is empty"
    if issuer.audience_match_policy not in ("", "MatchAny"):
        yield f'issuer.audienceMatchPolicy: Invalid value: "{issuer.audience_match_policy}": must be MatchAny'
    elif len(issuer.audiences) > 1 and not issuer.audience_match_policy:
        yield "issuer.audienceMatchPolicy: Invalid value: must be MatchAny for multiple audiences"


def _rule_errors(rule: ClaimValidationRule, path: str) -> Iterator[str]:
    if bool(rule.claim) == bool(rule.expression):
        yield f"{path}: Required value: exactly one of claim and expression is required"
    elif rule.claim and rule.message:
        yield f"{path}.message: Invalid value: message can't be set when claim is set"
    elif rule.expression and rule.required_value:
        yield f"{path}.requiredValue: Invalid value: requiredValue can't be set when expression is set"


def _prefixed_errors(mapping: PrefixedClaimOrExpression, path: str, *, required: bool) -> Iterator[str]:
    if mapping.claim and mapping.expression:
        yield f"{path}: Invalid value: claim and expression can't both be set"
    elif mapping.claim and mapping.prefix is None:
        yield f"{path}.prefix: Required value: prefix is required when claim is set; it may be empty"
    elif mapping.prefix is not None and not mapping.claim:
        yield f"{path}.prefix: Invalid value: prefix can't be set without claim"
    elif required and not mapping.claim and not mapping.expression:
        yield f"{path}: Required value: claim or expression is required"


def _extra_errors(extras: tuple[ExtraMapping, ...]) -> Iterator[str]:
    keys: set[str] = set()
    for index, extra in enumerate(extras):
        path, domain = f"claimMappings.extra[{index}]", extra.key.partition("/")[0]
        if "/" not in extra.key or not domain or extra.key != extra.key.lower():
            yield f'{path}.key: Invalid value: "{extra.key}": must be a lower-case domain-prefixed path'
        elif domain.endswith(("kubernetes.io", "k8s.io")):
            yield f'{path}.key: Invalid value: "{extra.key}": k8s.io and kubernetes.io are reserved'
        if extra.key in keys:
            yield f'{path}.key: Duplicate value: "{extra.key}"'
        if not extra.value_expression:
            yield f"{path}.valueExpression: Required value: valueExpression is required"
        keys.add(extra.key)


def _email_errors(authenticator: JWTAuthenticator) -> Iterator[str]:
    """Require that a user name made of an email address also checks that the address is verified."""
    mappings = authenticator.claim_mappings
    used = (
        mappings.username.expression,
        *(rule.expression for rule in authenticator.claim_validation_rules),
        *(extra.value_expression for extra in mappings.extra),
    )
    if _EMAIL.search(mappings.username.expression) and not any(_VERIFIED.search(each) for each in used):
        yield (
            "claimMappings.username.expression: Invalid value: claims.email_verified must be used in an expression of "
            "username, extra or claimValidationRules when claims.email is used"
        )
