"""What talks to servers: the HTTP API, kubectl, Go programs, subscribers, and steps that many tests share.

Nothing here starts a server, and nothing here knows what the right answer is: that belongs to `oracles` and `models`.
"""
