"""`python -m atoll.cli`."""

from atoll.cli.main import main

main()
