"""The group certificates.k8s.io: certificate signing requests. Operators provide the signers."""
