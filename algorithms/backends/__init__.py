"""Where the workers of a run live: in this process (`local`), or each in its own (`ray`)."""

from algorithms.backends.backend import Backend
from algorithms.backends.local import LocalBackend

__all__ = ["Backend", "LocalBackend"]
