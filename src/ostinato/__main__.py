"""`python -m ostinato` is the `ostinato` command."""

from ostinato.cli import main

main()
