"""x-kubernetes-validations: CEL rules in the definition of a kind, for the objects of that kind.

What belongs here: the CEL types and values of a schema (`declared`, `values`), compilation and checks of rules when a
definition is written (`program`, `definition`), and evaluation of rules on objects (`tree`, `evaluation`). Rules are
compiled once per schema content and live as long as the compiled schema. Everything is pure and takes the budget and
the pause of its caller; threads and deadlines are the caller's.

What does not belong here: the language itself (`cel`), schemas without rules (`schema`), admission policies, and the
order of a write (`apiserver`).
"""
