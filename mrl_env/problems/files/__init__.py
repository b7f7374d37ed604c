"""Problems from files (JSONL, JSON, CSV, Parquet) and from hub datasets, whatever their columns are called.

`readers` turns a file into rows, `rows` turns one row into a `Problem` and lists the columns it knows, `source` puts
both together: it collects what is malformed and filters.
"""

from mrl_env.problems.files.source import (
    HubProblems,
    ParsedProblems,
    ReadOptions,
    is_problem_file,
    load_problem_file,
    load_rows,
)

__all__ = ["HubProblems", "ParsedProblems", "ReadOptions", "is_problem_file", "load_problem_file", "load_rows"]
