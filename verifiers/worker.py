"""The process on the other side of `verifiers.isolation`: reads a JSON line, calls one function, writes a JSON line.

Run as `python -m verifiers.worker MEMORY_BYTES`. A request is `[path, arguments, cpu_seconds]`, a reply `["ok", value]`
or `["error", text]`. Only functions inside this package may be named.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

from verifiers.lookup import import_dotted


def limit_memory(limit: int) -> None:
    """Cap this process's address space at `limit` bytes; it then sees MemoryError instead of taking the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def limit_cpu(seconds: float) -> None:
    """Let the kernel end this process if the next request takes `seconds` more CPU time (rounded up)."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 2, hard))


def answer(line: str) -> list[Any]:
    """The reply to one request line."""
    path, arguments, cpu_seconds = json.loads(line)
    if not path.startswith("verifiers."):
        return ["error", f"ValueError: {path!r} lies outside the verifiers package"]
    limit_cpu(cpu_seconds)
    try:
        return ["ok", import_dotted(path)(*arguments)]
    except (Exception, RecursionError, MemoryError) as error:
        return ["error", f"{type(error).__name__}: {error}"[:500]]


def main() -> None:
    """Serve requests until standard input closes."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not corrupt the protocol
    limit_memory(int(sys.argv[1]))
    print(json.dumps(["ready", os.getpid()]), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(line)), file=replies, flush=True)


if __name__ == "__main__":
    main()
