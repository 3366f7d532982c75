"""Compilation of one expression, and of all expressions of a policy in the scope of its variables.

`policies.program` compiles what evaluates, `policies.writes` what is written. Invariant: nothing is raised for a bad
text: the expression holds its error, in Kubernetes' words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

import msgspec

from atoll.machinery.apiserver.admission.expressions.environment import (
    VARIABLES,
    declared_type,
    request_environment,
    with_patches,
)
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.errors import CompileError, ProgramError
from atoll.machinery.cel.program import Program
from atoll.machinery.cel.structures import OBJECT, PATCH_OPERATION
from atoll.machinery.cel.types import BOOL, DYN, NULL, STRING, Field, ListType, ObjectType, Type, runtime_name

Pause = Callable[[], None]

#: The types that an expression may have; none: any. A dynamic type is none of them.
CONDITION: tuple[Type, ...] = (BOOL,)
MESSAGE: tuple[Type, ...] = (STRING,)
ANNOTATION: tuple[Type, ...] = (STRING, NULL)
CONFIGURATION: tuple[Type, ...] = (OBJECT,)
PATCH: tuple[Type, ...] = (ListType(PATCH_OPERATION),)


class Expression(msgspec.Struct, frozen=True):
    """A compiled expression; without a program, `error` says why."""

    text: str
    program: Program | None = None
    error: str = ""

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return self.program.size_bytes if self.program is not None else 512 + 4 * (len(self.text) + len(self.error))


def compile_expression(
    environment: Environment, text: str, wanted: tuple[Type, ...] = (), pause: Pause | None = None
) -> Expression:
    """Compile a text whose value must have one of the `wanted` types. `pause` is called often, and may raise."""
    try:
        program = environment.compile(text, pause)
    except ProgramError as error:
        return Expression(text, error=f"program instantiation failed: {error}")
    except CompileError as error:
        return Expression(text, error=f"compilation failed: {error}")
    if wanted and program.type not in wanted:
        return Expression(text, error=_wrong_type(program.type, wanted))
    return Expression(text, program)


def _wrong_type(of: Type, wanted: tuple[Type, ...]) -> str:
    names = [_go_name(each) for each in wanted]
    if len(names) == 1:
        return f"must evaluate to {names[0]} but got {_go_name(of)}"
    return f"must evaluate to one of [{' '.join(names)}] but got {_go_name(of)}"


def _go_name(of: Type) -> str:
    """Return a type as cel-go's String() prints it, which differs from its messages."""
    if not of.parameters:
        return runtime_name(of)
    return f"{runtime_name(of)}({', '.join(map(_go_name, of.parameters))})"


class _MakeEnvironment(Protocol):
    """Makes the environment of a request, as `request_environment` does."""

    def __call__(self, *, params: bool, authorizer: bool, is_new: bool) -> Environment: ...


class Compiler:
    """Compiles the expressions of one policy. An expression sees the variables that were compiled before it.

    `stored` are the texts of the object that is replaced, which may use functions that a new text may not; None: every
    text may, as at evaluation. `environment` makes what is below the variables.
    """

    def __init__(
        self,
        *,
        params: bool,
        stored: Collection[str] | None = None,
        variables: bool = True,
        pause: Pause | None = None,
        environment: _MakeEnvironment = request_environment,
    ) -> None:
        self._params, self._stored, self._pause = params, stored, pause
        self._make = environment
        self._fields: dict[str, Field] = {}
        self._variables = ObjectType("kubernetes.variables", self._fields) if variables else None
        self._environments: dict[Any, Environment] = {}

    def variable(self, name: str, text: str) -> Expression:
        """Compile a variable and declare it for later expressions; one that does not compile is dynamic to them."""
        expression = self.expression(text)
        program = expression.program
        self._fields[name] = Field(DYN if program is None else declared_type(program.type))
        return expression

    def expression(self, text: str, wanted: tuple[Type, ...] = (), *, authorizer: bool = True) -> Expression:
        """Compile an expression; messages have no authorizer."""
        return compile_expression(self._environment(text, authorizer), text, wanted, self._pause)

    def mutation(self, text: str, *, is_patch: bool) -> Expression:
        """Compile the expression of a mutation: of a JSON patch, else of an apply configuration."""
        environment = self._environment(text, authorizer=True, patches=True)
        return compile_expression(environment, text, PATCH if is_patch else CONFIGURATION, self._pause)

    def _environment(self, text: str, authorizer: bool, patches: bool = False) -> Environment:
        is_new = self._stored is not None and text not in self._stored
        key = is_new, authorizer, patches
        environment = self._environments.get(key)
        if environment is None:
            environment = self._make(params=self._params, authorizer=authorizer, is_new=is_new)
            if patches:
                environment = with_patches(environment)
            if self._variables is not None:
                environment = environment.extend({VARIABLES: self._variables}, types=(self._variables,))
            self._environments[key] = environment
        return environment
