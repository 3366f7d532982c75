"""The core group of a workspace: namespaces, configuration, identities, events, quotas.

Pods, services and everything else that needs nodes are not part of a workspace; APIExports or CRDs provide them.
"""
