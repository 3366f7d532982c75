"""The catalogue of a logical cluster: its served kinds in order of precedence, their discovery and tables.

Built-in kinds, bound APIs and a cluster's own CustomResourceDefinitions become one catalogue, cached by the revisions
of the rows it derives from. Discovery, selectors, tables and printer columns belong here. OpenAPI does not
(`apiserver.openapi`), nor the kinds themselves (`machinery.kinds`).
"""
