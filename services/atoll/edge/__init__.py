"""The center of the edge service: its API in a workspace of its own, and the controllers that work on it.

What belongs here: the objects of that workspace (`objects`), `atoll edge-init`, which writes them (`install`), and the
process `atoll edge-controllers` (`process`): mailboxes, the where resolver, the placement translator, initializers.
What does not belong here: the rules of placement, which are pure (`machinery.edge`).
"""
