"""The two views of the edge layer: a workspace as a container of data, and a mailbox as its syncer sees it.

Belongs here: the kinds that both serve (`catalogs`), what a syncer carries (`carried`), one list and one watch of all
of it (`downsync_rows`, `downsync_cursor`), and what a syncer may read and write (`mailbox_rows`, `mailbox_rules`).

Not here: the rules without I/O (`machinery.edge`), and the controllers (`atoll.edge`).
"""
