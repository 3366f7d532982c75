"""What kube-apiserver's own admission does with the kinds of root's export `kubernetes`, one file a rule.

Each plug-in names its kinds in `resources`, so that writes of all others cost nothing more. A kind of the same group
and plural that is not the export's, such as another provider's, is left alone (`served.is_kubernetes_own`).
"""
