"""The group rbac.authorization.k8s.io: roles and their bindings.

What belongs here: checks of the objects. What does not belong here: escalation and bind checks (admission), and the
evaluation of rules (the authorizer).
"""
