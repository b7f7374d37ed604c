"""What can break a run."""


class NonFiniteError(RuntimeError):
    """Logits, loss or gradient are NaN or infinite, and going on would be of no use."""
