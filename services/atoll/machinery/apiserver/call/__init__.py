"""One resource request as a value: the parsed target, its options, its negotiated form, and the errors it may end in.

Verb handlers (`apiserver.rest`), admission and controllers speak in these terms. Nothing here reads the store.
"""
