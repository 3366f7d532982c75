"""The group certificates.k8s.io: requests for certificates. No signer runs here; operators bring their own."""
