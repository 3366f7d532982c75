"""The group events.k8s.io: the events of the core group with the field names of newer clients."""
