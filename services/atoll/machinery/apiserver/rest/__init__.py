"""The verbs, one file each: the readable heart of the API server.

Belongs here: what get, list, watch, create, update, patch, apply, delete and deletecollection mean for any kind.
Reads answer from a snapshot; writes are planned against a view and give a `Plan` (mutations and guards), which
the pipeline or a batch submits. Does not belong here: HTTP, authorization, anything about one kind.
"""
