"""The parsers under atheris, which looks for inputs that reach new code: `python -m benchmarks.fuzz.parsers [FLAGS] [CORPUS]`.

Optional, since it needs `atheris` (Python 3.11 to 3.13). The flags are libFuzzer's, such as `-runs=100000`.
"""

from __future__ import annotations

import sys
from contextlib import suppress


def main() -> None:
    """Instrument the parsers, and run until something is found.

    Exits with 2 if atheris is missing.
    """
    try:
        import atheris
    except ImportError:
        sys.exit("error: this needs atheris; install it with: pip install atheris")
    with atheris.instrument_imports(include=["verifiers", "mrl_env.exchange", "mrl_env.problems.files"]):
        from mrl_env.exchange import from_json, to_json
        from mrl_env.problems.files.readers import _parse_object
        from mrl_env.problems.files.rows import RowError, parse_row
        from verifiers.extraction import extract, extract_reference
        from verifiers.math.reading import read

    def one(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        read(text)
        extract(text, fallback=True)
        extract_reference(text)
        try:
            record = from_json(data)
        except ValueError:
            pass
        else:
            assert from_json(to_json(record)) == record
        row = _parse_object(text)
        if not isinstance(row, RowError):
            with suppress(RowError):
                parse_row(row, "p")

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
