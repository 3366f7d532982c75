"""Every suite of cases by name."""

from __future__ import annotations

from contract.oracle import expressioncases, fieldcases, policycases, rulecases, strategiccases, structuralcases
from contract.oracle.agreement import Suite

SUITES = {
    suite.name: suite
    for suite in (
        Suite("fields-custom", fieldcases.custom_case, fieldcases.ours, same=fieldcases.agree),
        Suite("fields-native", fieldcases.native_case, fieldcases.ours, fieldcases.native_theirs, fieldcases.agree),
        Suite("strategic", strategiccases.case, strategiccases.ours, strategiccases.theirs),
        Suite("structural", structuralcases.case, structuralcases.ours, structuralcases.theirs),
        Suite("expressions", expressioncases.case, expressioncases.ours, expressioncases.theirs),
        Suite("rules", rulecases.case, rulecases.ours, rulecases.theirs),
        Suite("policies", policycases.policy_case, policycases.ours, policycases.theirs),
        Suite(
            "mutations",
            policycases.mutation_case,
            policycases.our_mutation,
            policycases.their_mutation,
            policycases.same_mutation,
        ),
        Suite("definitions", rulecases.definition_case, rulecases.our_definition, rulecases.their_definition),
    )
}
