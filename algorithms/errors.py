"""What can break a run."""


class NonFiniteError(RuntimeError):
    """Logits, loss or gradient are NaN or infinite, and going on would be of no use."""


class WorkerLostError(RuntimeError):
    """A policy's worker died or did not answer in time; the message names policy, actor and node."""
