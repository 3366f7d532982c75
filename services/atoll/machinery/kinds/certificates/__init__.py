"""The group certificates.k8s.io: requests for certificates. Signers are the operators' own."""
