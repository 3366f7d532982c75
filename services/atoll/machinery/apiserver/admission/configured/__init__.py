"""Configured admission: webhook configurations and admission policies as users store them, applied to writes.

Belongs here: matching of requests with rules and selectors (`matching`), the versions of a resource that
`matchPolicy: Equivalent` looks at (`equivalents`), questions to webhooks and their answers (`questions`), and the
second round of mutating admission (`reinvocation`). Webhook calls and the evaluation of policies have packages of their
own, which use these.
"""
