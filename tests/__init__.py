"""Tests of Lowkey. One thread for each library, here and in processes that tests start: on few cores threads wait."""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):  # read when NumPy and torch are imported, which is later
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
