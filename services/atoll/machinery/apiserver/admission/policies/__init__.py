"""Admission policies: ValidatingAdmissionPolicies, and what MutatingAdmissionPolicies share with them.

    policy, binding      what a stored policy or binding says, without its expressions; cheap to make and to match
    program, programs    the compiled expressions of a policy, and the cache of them by content
    parameters           the objects that a binding hands to its policy
    validation           one policy with one parameter on one request: decisions
    dispatch, report     ValidatingPolicies: all policies of a request; denial, warnings, audit annotations, metrics
    type_checking        warnings about expressions that do not fit the schemas of the kinds they are for
    writes               PolicyWrites: compilation and authorization when a policy or binding is written

Matching is `configured`'s, variables and their evaluation are `expressions`'. Modules that load the language of
expressions are imported once a policy acts on a request. Invariant: evaluation is synchronous, in the view in which the
write is planned, and may be stopped and repeated: nothing is reported before all policies have decided.
"""
