"""The group coordination.k8s.io: leases, for leader election and heartbeats."""
