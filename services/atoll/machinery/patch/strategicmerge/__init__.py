"""Strategic merge patch: merge patch for built-in kinds, whose schemas declare how lists merge.

`merge` is the entry point; `lists` and `values` are its parts. How a place merges is read from
`structuredmerge.topology`. Not here: server-side apply.
"""
