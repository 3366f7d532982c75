"""`python -m atoll.cli`."""

from atoll.cli.atoll.main import main

main()
