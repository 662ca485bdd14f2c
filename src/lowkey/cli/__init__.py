"""The ``lowkey`` command. Commands parse, make one library call and render; imports wait until a command needs them."""

from lowkey.cli.app import main

__all__ = ["main"]
