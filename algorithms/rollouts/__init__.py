"""Rollouts: how a policy's completions are sampled. One module per engine."""
