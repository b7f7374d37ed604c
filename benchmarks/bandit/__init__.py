"""Sharing as a contextual bandit: the propositions of `docs/theory.md`, exactly and by simulation.

A prompt has K answers with rewards of 0 or 1, a policy is a softmax over them with one logit per answer, and everything is
float64 NumPy: `policy` (success and its gradient), `rows` (one weighted row), `groups` (groups of rows, as the algorithms
make them), `trajectories` (training), `propositions` (the table). `python -m benchmarks.bandit` runs all of it.
"""
