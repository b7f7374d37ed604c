"""Faults injected into whole runs at random moments, and what became of them: `python -m benchmarks.faults`."""
