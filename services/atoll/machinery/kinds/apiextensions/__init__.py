"""The group apiextensions.k8s.io: CustomResourceDefinitions, by which a workspace gets kinds of its own."""
