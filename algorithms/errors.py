"""What can break a run."""


class NonFiniteError(RuntimeError):
    """Logits, loss or gradient are NaN or infinite, and going on would be of no use."""


class WorkerLostError(RuntimeError):
    """A policy's worker died or did not answer in time; the message says which one, and where it was."""


class RankLostError(WorkerLostError):
    """One of the processes that hold a run in shards is lost: the others cannot bring it back, so the run ends."""


class EngineError(RuntimeError):
    """A rollout engine failed, or does not answer; what it was asked can be asked again from the last checkpoint."""
