"""One mutation of a MutatingAdmissionPolicy on one object: an apply configuration or a JSON patch.

`mutating` calls it for each mutation of a policy that acts, in order. Pure. Each mutation has a budget of its own, and
variables are evaluated for each anew, as in Kubernetes. Invariant: the object is not modified; the result shares parts
with it, and is not larger than a client may send it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.machinery.apiserver.admission.configured.protected import TooLarge, encoded
from atoll.machinery.apiserver.admission.expressions.evaluation import Evaluation, ExpressionFailed, OutOfBudget
from atoll.machinery.apiserver.admission.expressions.expression import Expression
from atoll.machinery.apiserver.admission.policies.program import MutatingProgram, Mutation
from atoll.machinery.cel.libraries.jsonpatch import Unconvertible, constructed, operations
from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.apply_configuration import ConfigurationRefused, merge_configuration
from atoll.machinery.patch.errors import FailedTest, PatchDoesNotApply, PatchError
from atoll.machinery.patch.json_patch import apply_json_patch
from atoll.machinery.patch.structuredmerge.topology import TypeSchema


class MutationFailed(Exception):
    """A mutation has no result; `str()` is Kubernetes' reason."""


def mutated(
    program: MutatingProgram, mutation: Mutation, values: Mapping[str, Any], obj: Object, types: TypeSchema
) -> Object:
    """Return the object after a mutation; itself if a `test` of a JSON patch failed. Raises MutationFailed."""
    value = _value(program, mutation.expression, values)
    try:
        if mutation.is_patch:
            found = apply_json_patch(obj, operations(value))
        else:
            configuration = {**constructed(value), "apiVersion": obj["apiVersion"], "kind": obj["kind"]}
            found = merge_configuration(obj, configuration, types)
        encoded(found)
        return found
    except FailedTest:
        return obj
    except Unconvertible as error:
        raise MutationFailed(str(error)) from None
    except TooLarge as error:
        raise MutationFailed(f"it {error}") from None
    except ConfigurationRefused as error:
        raise MutationFailed(f"error applying patch: {error}") from None
    except PatchDoesNotApply as error:
        raise MutationFailed(f"JSON Patch: {error.detail}") from None
    except PatchError as error:
        raise MutationFailed(f"JSON Patch: {error}") from None


def _value(program: MutatingProgram, expression: Expression, values: Mapping[str, Any]) -> Any:
    if expression.program is None:
        raise MutationFailed(expression.error)
    try:
        return Evaluation(values, program.scope).value(expression)
    except (ExpressionFailed, OutOfBudget) as error:
        raise MutationFailed(str(error)) from None
