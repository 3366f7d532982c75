"""The group apiextensions.k8s.io: CustomResourceDefinitions, which define further kinds in a workspace."""
