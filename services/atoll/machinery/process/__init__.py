"""What every Atoll process needs around its work: configuration, logging, metrics, lifecycle, keys and TLS.

Belongs here: things a process has once, and that know nothing of requests, objects or workspaces. Does not
belong here: sockets and HTTP (`wire`), authentication (`apiserver`), and whatever only one process needs.
"""
