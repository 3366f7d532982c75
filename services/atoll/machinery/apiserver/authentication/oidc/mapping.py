"""Maps the claims of a verified token to a user: required claims, claim mappings, rules over claims and user.

`source` compiles a `Mapper` per configuration, expressions included, and calls it for each new token. Pure. Invariant:
a rule that fails to evaluate refuses the token, like a rule that is false.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from atoll.machinery.apiserver.authentication.jwt import TokenError
from atoll.machinery.apiserver.authentication.oidc.config import (
    ClaimOrExpression,
    ClaimValidationRule,
    InvalidConfig,
    JWTAuthenticator,
    PrefixedClaimOrExpression,
)
from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.errors import BudgetExceeded, CompileError, EvaluationError
from atoll.machinery.cel.libraries.base import rule_libraries
from atoll.machinery.cel.program import Program
from atoll.machinery.cel.types import BOOL, DYN, STRING, Field, ListType, MapType, ObjectType, Type
from atoll.machinery.meta.user import User

#: Cost limit of all expressions for one token; Kubernetes limits each call to as much.
BUDGET = 1_000_000
_USER = ObjectType(
    "kubernetes.UserInfo",
    {
        "username": Field(STRING),
        "uid": Field(STRING),
        "groups": Field(ListType(STRING)),
        "extra": Field(MapType(STRING, ListType(STRING))),
    },
)
_environment = Environment({"claims": MapType(STRING, DYN), "user": _USER}, rule_libraries())

Claims = Mapping[str, Any]


class Mapper:
    """The rules and mappings of one issuer. Raises InvalidConfig for expressions that do not compile."""

    def __init__(self, config: JWTAuthenticator) -> None:
        self._config, mappings = config, config.claim_mappings
        path = "claimMappings."
        self._rules = [
            (rule, _compile(rule.expression, f"claimValidationRules[{index}].expression", BOOL, "claims"))
            for index, rule in enumerate(config.claim_validation_rules)
        ]
        self._username = _compile(mappings.username.expression, f"{path}username.expression", STRING, "claims")
        self._groups = _compile(mappings.groups.expression, f"{path}groups.expression", None, "claims")
        self._uid = _compile(mappings.uid.expression, f"{path}uid.expression", STRING, "claims")
        self._extra = [
            (extra.key, _compile(extra.value_expression, f"{path}extra[{index}].valueExpression", None, "claims"))
            for index, extra in enumerate(mappings.extra)
        ]
        self._user_rules = [
            (rule, _compile(rule.expression, f"userValidationRules[{index}].expression", BOOL, "user"))
            for index, rule in enumerate(config.user_validation_rules)
        ]

    def user(self, claims: Claims) -> User:
        """The user of verified claims. Raises TokenError."""
        budget = Budget(BUDGET)
        for rule, program in self._rules:
            _check_rule(rule, program, claims, budget)
        mappings = self._config.claim_mappings
        name = self._name(mappings.username, claims, budget)
        groups = _texts(claims, mappings.groups, self._groups, budget)
        extra = {key: found for key, program in self._extra if (found := _listed(_value(program, claims, budget)))}
        user = User(name, groups, self._uid_of(mappings.uid, claims, budget), extra)
        listed = {key: list(values) for key, values in extra.items()}
        variables = {"username": name, "uid": user.uid, "groups": list(groups), "extra": listed}
        for user_rule, program in self._user_rules:
            if program is None or _evaluate(program, {"user": variables}, budget) is not True:
                raise TokenError(user_rule.message or f"rule of the user failed: {user_rule.expression}")
        return user

    def _name(self, mapping: PrefixedClaimOrExpression, claims: Claims, budget: Budget) -> str:
        if self._username is not None:
            found = _value(self._username, claims, budget)
        else:
            found = _claim(claims, mapping.claim)
            if mapping.claim == "email" and claims.get("email_verified", True) is not True:
                raise TokenError("the email address is not verified")
        if not isinstance(found, str) or not found:
            raise TokenError("no username in the claims")
        return (mapping.prefix or "") + found

    def _uid_of(self, mapping: ClaimOrExpression, claims: Claims, budget: Budget) -> str:
        if self._uid is None and not mapping.claim:
            return ""
        found = _value(self._uid, claims, budget) if self._uid is not None else _claim(claims, mapping.claim)
        if not isinstance(found, str):
            raise TokenError("the uid in the claims is not a string")
        return found


def _compile(text: str, path: str, result: Type | None, variable: str) -> Program | None:
    if not text:
        return None
    try:
        program = _environment.compile(text)
    except CompileError as error:
        raise InvalidConfig(f'{path}: Invalid value: "{text}": compilation failed: {error}') from error
    if result is not None and program.type not in (result, DYN):
        raise InvalidConfig(f'{path}: Invalid value: "{text}": must evaluate to {result.name}')
    if program.variables - {variable}:
        raise InvalidConfig(f'{path}: Invalid value: "{text}": only {variable} can be used here')
    return program


def _evaluate(program: Program, bindings: dict[str, Any], budget: Budget) -> Any:
    try:
        return program.evaluate(bindings, budget)
    except (EvaluationError, BudgetExceeded) as error:
        raise TokenError(f"expression failed: {error}") from error


def _value(program: Program | None, claims: Claims, budget: Budget) -> Any:
    return _evaluate(program, {"claims": claims}, budget) if program is not None else None


def _check_rule(rule: ClaimValidationRule, program: Program | None, claims: Claims, budget: Budget) -> None:
    if program is None:
        if claims.get(rule.claim) != rule.required_value:
            raise TokenError(f"claim {rule.claim} does not have the required value")
    elif _evaluate(program, {"claims": claims}, budget) is not True:
        raise TokenError(rule.message or f"rule of the claims failed: {rule.expression}")


def _claim(claims: Claims, name: str) -> Any:
    if name not in claims:
        raise TokenError(f"claim {name} is absent")
    return claims[name]


def _texts(
    claims: Claims, mapping: PrefixedClaimOrExpression, program: Program | None, budget: Budget
) -> tuple[str, ...]:
    """Groups: one string or a list; none if the claim is absent."""
    if program is not None:
        found = _value(program, claims, budget)
    else:
        found = claims.get(mapping.claim) if mapping.claim else None
    prefix = mapping.prefix or ""
    return tuple(dict.fromkeys(prefix + each for each in _listed(found)))


def _listed(found: Any) -> tuple[str, ...]:
    return tuple(_strings(found))


def _strings(found: Any) -> Iterator[str]:
    if found is None or found == "":
        return
    for each in found if isinstance(found, list) else [found]:
        if not isinstance(each, str):
            raise TokenError("a value in the claims is not a string")
        if each:
            yield each
