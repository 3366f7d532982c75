"""The core group that a workspace serves: namespaces, configuration, identities, events, quotas.

Pods, services and everything that needs nodes are no part of a workspace; they come as APIExports or CRDs.
"""
