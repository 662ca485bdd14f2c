"""A supervisor stops an audit, or the system kills one of its workers, and the command never ends.

``lowkey`` turns SIGTERM into an exception, so that stopping a service cleans up just as Ctrl-C does. The audit's worker
processes inherited that. An exception can be lost where Python cannot raise it, in a destructor, say, and a signal that
arrives just before a worker waits for a queue is noticed only when the queue wakes it. Such a worker went on, sat down
at the queue's semaphore, which the parent held, and the parent waited for it for ever. Nor did the parent notice a
worker that was killed: the job was lost, and its result was waited for, for ever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

DEFENDS = "Ending a run or an audit never waits for ever for a worker process, whatever that worker is doing."

AUDIT = """
import os, signal, sys, time
from lowkey.privacy import ClientPrivacy
from lowkey.rng import ReplaySecrets
from lowkey.simulation import run_audit

signal.signal(signal.SIGTERM, signal.default_int_handler)  # as the command line does
parent, story = os.getpid(), sys.argv[1]


class Deaf:
    def __del__(self):  # Python drops exceptions that are raised here
        time.sleep(0.3)


class Troubled(ReplaySecrets):
    def source(self, *names):
        if os.getpid() != parent and names[0] == "cohort":
            if story == "deaf":
                Deaf()
            elif names[1] == 3:  # of one round, as a system that is short of memory would
                os.kill(os.getpid(), signal.SIGKILL)
        return super().source(*names)


def stop(done, total):
    if story == "deaf":
        os.kill(parent, signal.SIGTERM)


quiet = ClientPrivacy(clip_norm=0.47, noise_multiplier=0.4, delta=1e-5, bits=24, dropouts=0.0, colluders=0.0)
few = dict(members=10, trials=400, canaries=20, guesses=2, masked_rounds=0)
run_audit(quiet, **few, secrets=Troubled(1), workers=2, progress=stop)
"""


def audit(story: str, seconds: float = 25.0) -> tuple[int | None, str]:
    """Exit code and errors of an audit in a process of its own; the code is None if it had to be killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", AUDIT, story], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
        return None, errors
    return process.returncode, errors


def test_an_audit_that_is_stopped_ends_though_a_worker_does_not_hear_it() -> None:
    code, errors = audit("deaf")
    assert code is not None, f"the audit had to be killed: {errors}"
    assert "KeyboardInterrupt" in errors


def test_an_audit_whose_worker_was_killed_ends_and_says_so() -> None:
    code, errors = audit("killed")
    assert code is not None, f"the audit had to be killed: {errors}"
    assert "exit code -9" in errors
