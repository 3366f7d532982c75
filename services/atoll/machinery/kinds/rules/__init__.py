"""x-kubernetes-validations: rules in CEL that a definition's author sets for the objects of a kind.

Here belong: how a schema becomes CEL types and values (`declared`, `values`), how rules are compiled and judged when a
definition is written (`program`, `definition`), and how they judge objects (`tree`, `judge`). Rules are compiled once
for each schema content and live and die with the compiled schema. Everything is pure and takes the budget and the
pause that its caller hands in; nothing here knows threads or deadlines.

Not here: the language itself (`cel`), what a schema says without rules (`schema`), admission policies, and the order
of a write (`apiserver`).
"""
