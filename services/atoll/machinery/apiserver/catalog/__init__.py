"""Kinds of a logical cluster: which are served, in what order, and the documents and tables made of them.

Built-in kinds, bound APIs and a cluster's own CustomResourceDefinitions become one catalogue, cached by the revisions
of the rows that it derives from. Discovery, selectors, tables and printer columns of those kinds belong here. OpenAPI
does not (`apiserver.openapi`), nor the kinds themselves (`machinery.kinds`).
"""
