"""The group rbac.authorization.k8s.io: roles and who has them.

Here is what the objects must look like. Who may grant what (escalation and bind checks) and what the rules
allow is decided by the authorizer and by admission.
"""
