"""APIExports and APIBindings in their two versions, converted without loss.

Here belong the differences between v1alpha1 and v1alpha2 (schemas by name or as resources, claims with or without verbs
and selectors), and the annotations in which one version keeps content for which the other has no field. The functions
are pure and total: they accept any JSON, omit malformed parts, and `problems` lists the omissions.

The served versions (`machinery.kcp.kinds`) and write permissions (admission) do not belong here. Everything inside the
server works on v1alpha2, the stored version.
"""

from atoll.machinery.kcp.apis.versions.convert import V1ALPHA1, V1ALPHA2, convert, latest, problems

__all__ = ["V1ALPHA1", "V1ALPHA2", "convert", "latest", "problems"]
