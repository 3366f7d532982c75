"""The embedded nats-server: its configuration, its users, its process.

Here belongs what runs a server of our own or writes the configuration of one. What a user may name on a server is in
`permissions`; how a client connects is in `connection`. Nothing here is needed beside a server that somebody else runs.
"""
