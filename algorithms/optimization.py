"""Optimizers and learning rates: float32 master weights for low-precision models, and schedules as pure functions."""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from algorithms.memory import return_freed_memory
from algorithms.offloading import FileMemory

_ALIGNED = 16
"""Elements: each gradient begins at a multiple of so many, where vector instructions are fastest."""

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
        offload: a folder, to keep masters and state out of the way while they are not needed: those of a model on a CPU in a
            file there, those of a model on another device in CPU memory outside `resident`. None keeps them beside the model.
        **kwargs: the optimizer's arguments.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        optimizer_class: type[torch.optim.Optimizer],
        *,
        offload: Path | None = None,
        **kwargs: Any,
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        on_cpu = all(parameter.device.type == "cpu" for parameter in self.parameters)
        self._file = FileMemory(offload) if offload is not None and on_cpu else None
        self._to_cpu = offload is not None and not on_cpu
        self.masters = [
            p if p.dtype.itemsize >= torch.float32.itemsize else torch.nn.Parameter(p.detach().to(torch.float32))
            for p in self.parameters
        ]
        self.optimizer = optimizer_class(self.masters, **kwargs)
        for index, (parameter, master) in enumerate(zip(self.parameters, self.masters, strict=True)):
            if master is not parameter:
                parameter.master = master  # type: ignore[attr-defined]
                parameter.register_post_accumulate_grad_hook(partial(_move_gradient, master))
            self._set_aside(index)
        if self._to_cpu:
            self._move([torch.device("cpu")] * len(self.parameters))

    def embed_sparsely(self, embedding: torch.nn.Module) -> None:
        """Let a layer that embeds tokens make gradients of the tokens that it met alone, not one of zeros for all others.

        Only where the gradient moves to a master: neither clipping nor PyTorch's AdamW takes a sparse one. And only on a CPU.

        Args:
            embedding: the model's input embedding, of any class.
        """
        if isinstance(embedding, torch.nn.Embedding) and embedding.weight.device.type == "cpu":
            moved = {id(p) for p, master in zip(self.parameters, self.masters, strict=True) if master is not p}
            embedding.sparse = id(embedding.weight) in moved

    @contextmanager
    def resident(self) -> Iterator[None]:
        """Within it everything is where the parameters are, so that there can be backward passes and steps."""
        if self._to_cpu:
            self._move([parameter.device for parameter in self.parameters])
        if self._file is not None:
            return_freed_memory()
            _set_gradients_apart([m for m, p in zip(self.masters, self.parameters, strict=True) if m is not p])
        try:
            yield
        finally:
            for master in self.masters:
                master.__dict__.pop("room", None)
            if self._to_cpu:
                self._move([torch.device("cpu")] * len(self.parameters))

    def _move(self, devices: Sequence[torch.device]) -> None:
        """Move each master that is not the parameter itself, and the state of each."""
        for index, device in enumerate(devices):
            for tensor in self._owned(index):
                tensor.data = tensor.data.to(device)

    def _set_aside(self, index: int) -> None:
        """Put a parameter's master and state into the file, if there is one."""
        if self._file is None:
            return
        for tensor in self._owned(index):
            if tensor in self._file:
                self._file.give_back(tensor)
            else:
                tensor.data = self._file.place(tensor.data)
                return_freed_memory()

    @property
    def _one_by_one(self) -> bool:
        """Whether parameters are stepped one at a time, so that only one's state is in memory: with a file, and an optimizer
        of PyTorch, whose steps are all by parameter. Others may count their steps, and take all parameters at once.
        """
        return self._file is not None and type(self.optimizer).__module__.startswith("torch.optim.")

    def rest(self) -> None:
        """Put everything back into the file, if there is one: reading the state, for a checkpoint, took it into memory."""
        for index in range(len(self.masters)):
            self._set_aside(index)

    @property
    def read_in_parts(self) -> bool:
        """Whether a saved state is best read part by part, as it is taken over."""
        return self._file is not None

    def finite(self) -> bool:
        """Whether all weights that are trained are finite."""
        return all_finite(self.parameters)

    def clip_gradients(self, max_norm: float) -> float:
        """Scale all gradients down to a norm; returns what it was."""
        return float(torch.nn.utils.clip_grad_norm_(self.masters, max_norm))

    def _owned(self, index: int) -> Iterator[torch.Tensor]:
        """The master of a parameter, if it is not the parameter itself, and its state; without counters, which are where the
        optimizer wants them.
        """
        master = self.masters[index]
        if master is not self.parameters[index] and master.numel() > 0:
            yield master
        for value in self.optimizer.state.get(master, {}).values():
            if isinstance(value, torch.Tensor) and value.dim() > 0 and value.numel() > 0:
                yield value

    def step(self, learning_rate: float) -> None:
        """Apply the masters' gradients and clear them."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        every = range(len(self.masters))
        gradients = [master.grad for master in self.masters]
        if self._file is not None:
            return_freed_memory()  # of the activations
        for portion in [[index] for index in every] if self._one_by_one else [every]:
            self.zero_grad()
            for index in portion:
                self.masters[index].grad = gradients[index]
                gradients[index] = None
            self.optimizer.step()
            for index in portion:
                if self.masters[index] is not self.parameters[index]:
                    with torch.no_grad():
                        self.parameters[index].copy_(self.masters[index])
                self._set_aside(index)
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
        if self._file is not None:
            self._file = FileMemory(
                self._file.folder
            )  # the state will be other tensors; the former file goes with the former ones
        self.optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            for parameter, master, saved in zip(self.parameters, self.masters, state["masters"], strict=True):
                # What was saved without masters, by a float32 run, is in the parameters.
                master.copy_(parameter if saved is None else saved)
        self.rest()


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether no tensor has a NaN or infinite element; reads each once and needs no memory for it."""
    extremes = [torch.stack(torch.aminmax(tensor.detach())) for tensor in tensors if tensor.numel() > 0]
    return all(bool(pair.isfinite().all()) for pair in extremes)


def master_gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    """The gradient that a parameter's float32 master collects, zeros at first; None if the parameter has no master.

    A backward pass may add to it, part by part, instead of returning a gradient of the whole parameter.
    """
    master: torch.nn.Parameter | None = getattr(parameter, "master", None)
    if master is None:
        return None
    if master.grad is None:
        master.grad = _zeros(master)
    return master.grad


def _zeros(master: torch.nn.Parameter) -> torch.Tensor:
    """Zeros for a master's first gradient, where there is room for it."""
    room: torch.Tensor | None = getattr(master, "room", None)
    return torch.zeros_like(master) if room is None else room


def _set_gradients_apart(masters: Sequence[torch.nn.Parameter]) -> None:
    """Make room for the gradients of masters in memory of their own, of zeros, which is given back with the last of them.

    They come while activations go: side by side they would leave holes, and the process would grow with every backward pass.
    """
    starts = [0, *itertools.accumulate(-(-master.numel() // _ALIGNED) * _ALIGNED for master in masters)]
    if starts[-1] == 0:
        return
    memory = mmap.mmap(-1, starts[-1] * torch.float32.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    every = torch.frombuffer(memory, dtype=torch.float32)
    for master, start in zip(masters, starts, strict=False):
        master.room = every[start : start + master.numel()].view_as(master)  # type: ignore[attr-defined]


def _move_gradient(master: torch.nn.Parameter, parameter: torch.Tensor) -> None:
    """Add a parameter's gradient to its master's, and clear it."""
    gradient = parameter.grad
    if gradient is None:  # the backward pass has added it by itself
        return
    if gradient.is_sparse:
        # Where tokens are embedded more than once, their rows are added in float32, too.
        gradient = gradient.to(master.dtype)
    if master.grad is None:
        master.grad = _zeros(master)
    master.grad.add_(gradient)
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
