"""The command ``lowkey`` called in this process: the same ``main``, without the seconds that a new Python takes."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

from lowkey.cli import main


def lowkey(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What the command prints and its exit code; an exception that it lets out comes out here too."""
    command = ["lowkey", *map(str, arguments)]
    output, errors = io.StringIO(), io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, before)
        stack.enter_context(mock.patch.object(sys, "argv", command))
        stack.enter_context(mock.patch.object(sys, "excepthook", sys.excepthook))
        stack.enter_context(contextlib.chdir(cwd or Path.cwd()))
        stack.enter_context(contextlib.redirect_stdout(output))
        stack.enter_context(contextlib.redirect_stderr(errors))
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(command, int(str(code or 0)), output.getvalue(), errors.getvalue())
