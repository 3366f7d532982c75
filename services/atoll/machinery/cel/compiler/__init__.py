"""From typed tree to closures: one closure for each node, and the activation that an evaluation runs them on.

What belongs here: code that runs once for each node at compile time, and the closures that it makes. What does not
belong here: implementations of functions (`std`, `ext`, `libraries`) and the prices of calls (`cost`).
"""
