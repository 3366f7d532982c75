"""The group events.k8s.io: the events of the core group under the names that newer clients use."""
