"""Parts of every Atoll process: configuration, logging, lifetime, back-off, feature gates, keys and TLS.

Belongs here: parts that know nothing of requests, objects or workspaces. Does not belong here: sockets and HTTP
(`wire`), authentication (`apiserver`), and parts of one process alone.
"""
