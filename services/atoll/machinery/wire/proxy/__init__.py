"""A streaming reverse proxy on top of the HTTP server and client: request bodies and responses pass through unbuffered.

Belongs here: the server's connections that hand requests over at the end of their heads (`streaming`), connections to
backends (`backend`), the framing of the next hop (`framing`), and the relay between the two (`relay`). Does not belong
here: which backend a request is for, which identity headers it carries, and the error bodies that clients see.
"""
