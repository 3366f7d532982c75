"""APIExports and APIBindings in their two versions, converted without loss.

Here belongs what v1alpha1 and v1alpha2 say differently of the same object (schemas by name or as resources, claims
with or without verbs and selectors), and the annotations in which each version keeps what the other cannot say. The
functions are pure and total: any JSON goes in, what makes no sense is left out, and `problems` says what that was.

Not here: which versions are served and how handlers use them (the shard wires these functions into its kinds), and
who may write what (admission). Everything inside the server works on v1alpha2, the stored version.
"""

from atoll.machinery.kcp.apis.versions.convert import V1ALPHA1, V1ALPHA2, convert, latest, problems

__all__ = ["V1ALPHA1", "V1ALPHA2", "convert", "latest", "problems"]
