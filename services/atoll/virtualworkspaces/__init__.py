"""Virtual workspaces: views over many logical clusters under `/services/<name>/`.

Here belongs, one module a view: which users may open it, what it shows and which writes it admits. The APIExport view
has four: `apiexport`, and its parts `export_catalog`, `accepted_claims` and `export_request`. A view only rewrites a
request into one that the shard's own resources answer (`apiserver.serving.pipeline`); it stores and answers nothing.

Not here: verbs, lists and watches (`apiserver`), and workspace phases (`controllers`).
"""
