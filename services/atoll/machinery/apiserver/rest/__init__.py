"""The verbs, one file each.

Belongs here: what get, list, watch, create, update, patch, apply, delete and deletecollection mean for any kind.
Reads answer from a snapshot; writes are planned against a view into a `Plan` (mutations and guards), which
`apiserver.writing` submits. Does not belong here: HTTP, authorization, anything about one kind.
"""
