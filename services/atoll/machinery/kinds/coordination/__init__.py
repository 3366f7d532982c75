"""The group coordination.k8s.io: leases, by which programs elect leaders and show that they live."""
