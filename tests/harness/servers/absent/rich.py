"""Found by tests and servers in place of `rich`, which is here with a tool of the tests alone.

structlog takes it wherever it is. Loading it is nearly half of a server's import, and it draws each traceback of a log
in a tenth of a second.
"""

raise ImportError("tests run as where only the product is installed")
