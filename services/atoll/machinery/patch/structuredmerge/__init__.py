"""Values walked together with their schema: the basis of server-side apply and field management.

Here belongs what Kubernetes keeps in `structured-merge-diff`: how the parts of a kind merge (`topology`), which
fields a value sets (`fieldset_builder`), how two values differ (`comparison`), one value merged over another (`merge`),
and why a value does not fit its schema (`validation`). Not here: which manager owns a field (`managedfields`).
"""
