"""Ctrl-C and SIGTERM: finish what is being done, then stop; a second one, of either kind, stops at once."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Any

logger = logging.getLogger(__name__)

_AT_ONCE: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""How a second signal ends the process where it was ignored before, as a shell's background jobs ignore SIGINT."""


class Interruption:
    """Watches for SIGINT and SIGTERM inside a `with` block; only in the main thread, elsewhere it does nothing.

    Attributes:
        requested: whether a first signal has come.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        """Begin to watch."""
        if threading.current_thread() is threading.main_thread():
            self._previous = {n: signal.signal(n, self._handle) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        """Put the handlers back that were there before."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        for each, handler in self._previous.items():
            signal.signal(each, _AT_ONCE[each] if handler is signal.SIG_IGN else handler)
        logger.warning("interrupted: finishing and saving this step; interrupt again to stop at once")
