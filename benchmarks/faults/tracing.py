"""A process killed at the n-th system call of a stretch of its work, whichever library makes the call (Linux, ptrace(2)).

The child calls `begin` and `end` around the stretch, which send it SIGUSR1; the parent, which forked it, calls `kill_at` or
`count`.
"""

from __future__ import annotations

import ctypes
import os
import signal

_TRACEME, _SYSCALL, _DETACH, _SETOPTIONS = 0, 24, 17, 0x4200
_TRACESYSGOOD = 1
_SYSTEM_CALL = signal.SIGTRAP | 0x80
"""With TRACESYSGOOD the signal of a stop at a system call; there is one before and one after each."""


def begin() -> None:
    """In the child: from now on the parent stops this thread at each system call."""
    _ptrace(_TRACEME, 0)
    os.kill(os.getpid(), signal.SIGUSR1)


def end() -> None:
    """In the child: the stretch is over."""
    os.kill(os.getpid(), signal.SIGUSR1)


def count(process: int) -> int:
    """In the parent: let the child do its stretch, and go on after it.

    Returns:
        The number of system calls of the stretch; 0 if the child ends without one.
    """
    return kill_at(process, None)


def kill_at(process: int, number: int | None) -> int:
    """In the parent: kill the child (SIGKILL) at the n-th system call of its stretch, before the call is carried out.

    Args:
        process: the child; it is not waited for at the end.
        number: 0, 1, ...; None lets it go on behind the stretch.

    Returns:
        The system calls that the stretch had got through.
    """
    while (stopped_by := _stopped(process)) != signal.SIGUSR1:
        if not stopped_by:
            return 0
    _ptrace(_SETOPTIONS, process, _TRACESYSGOOD)
    stops = 0
    forwarded = 0
    while True:
        _ptrace(_SYSCALL, process, forwarded)
        stopped_by = _stopped(process)
        if not stopped_by:
            return stops // 2
        forwarded = 0
        if stopped_by == signal.SIGUSR1:  # the stretch is over
            _ptrace(_DETACH, process)
            return stops // 2
        if stopped_by != _SYSTEM_CALL:
            forwarded = stopped_by
            continue
        if stops % 2 == 0 and stops // 2 == number:
            os.kill(process, signal.SIGKILL)
            return stops // 2
        stops += 1


def _stopped(process: int) -> int:
    """The signal that the child has stopped by; 0 if it has ended, which is left to be waited for."""
    found = os.waitid(os.P_PID, process, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
    assert found is not None
    if found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
        return 0
    return os.WSTOPSIG(os.waitpid(process, 0)[1])


def _ptrace(request: int, process: int, data: int = 0) -> None:
    """See ptrace(2).

    Raises:
        OSError: if the system refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, process, None, data) == -1:
        raise OSError(ctypes.get_errno(), f"ptrace: {os.strerror(ctypes.get_errno())}")
