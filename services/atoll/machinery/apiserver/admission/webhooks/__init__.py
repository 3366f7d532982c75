"""Calls of admission webhooks: from a question of a plan to its answer.

Belongs here: the AdmissionReview in both versions (`review`), the patch of an answer (`patches`), the call with its
failure policy, warnings and audit annotations (`caller`), the texts and codes of its errors (`failures`), and their
metrics (`metrics`).

Not here: which webhooks act on a write, and when (`configured`), and the addresses that may be called (`egress`).
Nothing here reads a store.
"""
