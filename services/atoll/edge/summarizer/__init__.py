"""The status summarizer: what edge clusters report of placed objects, as StatusSummaries in their workspaces.

`summarizer` joins its parts: `rows` reads copies, `collected` holds StatusCollectors, `reports` what syncers say, and
`summaries` writes. What is placed where it knows from the placement translator, in whose process it runs; what it reads
and writes, it does with its own account.
"""
