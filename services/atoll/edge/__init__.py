"""The center of the edge service: its API in a workspace of its own, and the controllers that work on it.

What belongs here: the objects of that workspace, `atoll edge-init`, which writes them, and the process
`atoll edge-controllers`. What does not belong here: the rules of placement, which are pure (`machinery.edge`).
"""
