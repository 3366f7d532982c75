"""The two views of the edge layer: a workspace as a container of data, and a mailbox as its syncer sees it.

Belongs here: the views (`edge_view`, `mailbox`), what a syncer carries (`carried`), one list and one watch of all
of it (`downsync_rows`, `downsync_cursor`), and what a syncer may read and write (`mailbox_rows`, `mailbox_rules`).

Not here: the rules without I/O (`machinery.edge`), the kinds that both serve (`apiserver.catalog.edge_catalogs`), and
the controllers (`atoll.edge`).
"""
