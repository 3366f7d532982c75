"""Values walked together with their schema: what server-side apply and managedFields are computed from.

Here belongs what Kubernetes keeps in `structured-merge-diff`: how the parts of a kind merge (`topology`), which
fields a value sets (`fieldset_builder`), how two values differ (`comparison`), one value merged over another
(`merge`), and why a value does not fit (`validation`). Not here: who owns a field (`managedfields`).
"""
