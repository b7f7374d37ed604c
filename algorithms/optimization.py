"""Optimizers and learning rates: float32 master weights for low-precision models, and schedules as pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch

ScheduleType = Literal["constant", "linear", "cosine"]


class MasterOptimizer:
    """An optimizer that keeps float32 copies of parameters of a lower precision.

    Updates of RL are far below bfloat16's resolution; applied to the weights themselves most would round away. The
    optimizer works on float32 masters, and the model gets their rounded values. The masters also hold the gradient, so that
    a sum over many micro-batches does not round away either; each parameter's gradient moves there as soon as the backward
    pass has made it, so that there is never a second set of gradients. For float32 models masters are the parameters.

    Args:
        parameters: the model's trainable parameters.
        optimizer_class: a PyTorch optimizer.
        offload: keep masters and state in CPU memory outside `resident`.
        **kwargs: the optimizer's arguments.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        optimizer_class: type[torch.optim.Optimizer],
        *,
        offload: bool = False,
        **kwargs: Any,
    ) -> None:
        self.offload = offload
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.masters = [
            p if p.dtype.itemsize >= torch.float32.itemsize else torch.nn.Parameter(p.detach().to(torch.float32))
            for p in self.parameters
        ]
        self.optimizer = optimizer_class(self.masters, **kwargs)
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is not parameter:
                parameter.register_post_accumulate_grad_hook(partial(_move_gradient, master))
        if offload:
            self._move([torch.device("cpu")] * len(self.parameters))

    @contextmanager
    def resident(self) -> Iterator[None]:
        """Within it everything is where the parameters are, so that there can be backward passes and steps."""
        if self.offload:
            self._move([parameter.device for parameter in self.parameters])
        try:
            yield
        finally:
            if self.offload:
                self._move([torch.device("cpu")] * len(self.parameters))

    def _move(self, devices: Sequence[torch.device]) -> None:
        """Move each master that is not the parameter itself, and the state of each."""
        for parameter, master, device in zip(self.parameters, self.masters, devices, strict=True):
            if master is not parameter:
                master.data = master.data.to(device)
            for name, value in self.optimizer.state.get(master, {}).items():
                # Counters are where the optimizer wants them.
                if isinstance(value, torch.Tensor) and value.dim() > 0:
                    self.optimizer.state[master][name] = value.to(device)

    def step(self, learning_rate: float) -> None:
        """Apply the masters' gradients and clear them."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.masters, strict=True):
                if master is not parameter:
                    parameter.copy_(master)
        self.zero_grad()

    def zero_grad(self) -> None:
        """Clear all gradients."""
        for parameter in (*self.parameters, *self.masters):
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, with the masters where they differ from the parameters."""
        masters = [
            None if master is parameter else master.detach()
            for parameter, master in zip(self.parameters, self.masters, strict=True)
        ]
        return {"optimizer": self.optimizer.state_dict(), "masters": masters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; the model's parameters are restored before, by its own checkpoint."""
        self.optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            for parameter, master, saved in zip(self.parameters, self.masters, state["masters"], strict=True):
                # What was saved without masters, by a float32 run, is in the parameters.
                master.copy_(parameter if saved is None else saved)


def _move_gradient(master: torch.nn.Parameter, parameter: torch.Tensor) -> None:
    """Add a parameter's gradient to its master's, and clear it."""
    assert parameter.grad is not None
    if master.grad is None:
        master.grad = parameter.grad.to(master.dtype)
    else:
        master.grad.add_(parameter.grad)
    parameter.grad = None


def scheduled_learning_rate(
    base: float, schedule: ScheduleType, update: int, total_updates: int, warmup_updates: int
) -> float:
    """The learning rate of one optimizer update.

    Args:
        base: the peak.
        schedule: after the warm-up `constant`, or falling to 0 over the remaining updates (`linear`, `cosine`).
        update: 0, 1, ...
        total_updates: updates of the whole run.
        warmup_updates: updates over which the rate rises linearly; the first one already moves.

    Example:
        >>> [scheduled_learning_rate(1.0, "linear", u, 4, 2) for u in range(4)]
        [0.5, 1.0, 1.0, 0.5]
    """
    if update < warmup_updates:
        return base * (update + 1) / warmup_updates
    if schedule == "constant":
        return base
    progress = (update - warmup_updates) / max(1, total_updates - warmup_updates)
    progress = min(1.0, progress)
    return base * (1 - progress) if schedule == "linear" else base * 0.5 * (1 + math.cos(math.pi * progress))
