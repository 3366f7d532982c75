"""Found by servers in place of `rich`, which is here with a tool of the tests alone.

structlog loads it wherever it is, and that takes nearly half of the time in which a server is imported.
"""

raise ImportError("servers run as where only they are installed")
