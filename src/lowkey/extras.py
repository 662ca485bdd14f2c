"""Optional libraries: which extra brings each, and how to install it.

Lowkey is installed from a clone of its repository; no package index has it.
"""

from __future__ import annotations

_EXTRAS = {
    "torch": ("simulation needs PyTorch", "torch"),
    "flwr": ("deployment needs Flower", "flower"),
    "polars": ("hospital data needs polars and scikit-learn", "hospital"),
    "sklearn": ("hospital data needs polars and scikit-learn", "hospital"),
    "nacl": ("proofs under masks need PyNaCl", "proofs"),
    "tensorboard": ("the tracker needs TensorBoard", "trackers"),
}


def how_to_install(error: ModuleNotFoundError) -> str | None:
    """One line that says what needs the missing library, and the command that installs it.

    Parameters
    ----------
    error : ModuleNotFoundError
        Raised by the import that failed.

    Returns
    -------
    str or None
        The text of an error message; None if the library belongs to no extra: then its absence is a defect.
    """
    library = (error.name or "").split(".")[0]
    if library not in _EXTRAS:
        return None
    reason, extra = _EXTRAS[library]
    return f"{reason}; install it from a clone of Lowkey with: pip install -c constraints.txt '.[{extra}]'"
