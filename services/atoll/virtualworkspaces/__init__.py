"""What stands behind `/services/<name>/`: views of many logical clusters for those who serve them.

Here belongs who may open a view, what it shows and what it lets change: one file each, and for exports four
(`apiexport`, whose parts are `exportoffers`, `consents` and `exportpassage`). A view only turns a request into one that
the shard's own resources answer (`apiserver.pipeline.Service`); it stores nothing and answers nothing.

Not here: verbs, lists and watches (`apiserver`), and what moves a workspace on (`controllers`).
"""
