"""``python -m lowkey``."""

from lowkey.cli import main

main()
