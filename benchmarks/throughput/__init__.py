"""How fast a step is, and in how much memory: `python -m benchmarks.throughput`, against TRL with `--against trl`."""
