"""A learner's model, gradients and optimizer state in shards on several processes: PyTorch's FSDP2 (`fully_shard`).

Every process has one part of each parameter. A layer's parameters are gathered before it is computed, forward and backward, and
let go behind it; its gradients are added up over the processes, in float32, and each process keeps its part. The loss is
divided by denominators of the whole minibatch (`algorithms/losses.py`), so the sum of the processes' gradients is the gradient.

What must be otherwise than in one process is here:

- The shards are the float32 masters; what is gathered of them has the model's type. So parameters have no masters beside
  them, and the tricks that add to those (the head's tiles, sparse gradients of embeddings) do not apply: gradients take the
  usual way.
- All processes take the same steps: a forward pass is always two passes over the layers, prompts and tails; who has no
  micro-batch left works on one that does not count (`Ranks.shared`).
- Sampling would gather every weight for every token. So outside updates each process has the whole model, in its own type.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from transformers import PreTrainedModel

from algorithms.config import PolicyConfig, TrainingConfig
from algorithms.learner import Learner, LearnerConfig, Passes
from algorithms.logprobs import TokenLogProbs
from algorithms.optimization import MasterOptimizer, all_finite
from algorithms.packing import Packed
from algorithms.ranks import Ranks


def check_sharding(config: TrainingConfig, policies: Sequence[PolicyConfig]) -> None:
    """Refuse settings that make no sense for a model in shards.

    Args:
        config: the run's.
        policies: those in shards.

    Raises:
        ValueError: naming the field and the remedy.
    """
    if config.offload_optimizer and policies:
        raise ValueError(
            "offload_optimizer=True, but of a policy with several processes the optimizer's state is sharded instead; leave it "
            "out, and take more processes if memory is short"
        )
    for policy in policies:
        if policy.load_in_4bit:
            raise ValueError(
                f"load_in_4bit=True for {policy.name}, but weights in four bits cannot be sharded; leave it out, or use one "
                "process for each policy"
            )
        engine = policy.engine
        if policy.use_vllm and engine.mode == "server" and engine.server_base_url is None:
            raise ValueError(
                f"vllm_mode='server', but {policy.name} has several processes, each with an engine of its own, or engines on "
                "other devices; set vllm_mode colocate"
            )


def check_torchrun(config: TrainingConfig) -> None:
    """Refuse settings that make no sense under `torchrun`, which has all policies in shards on all processes.

    Raises:
        ValueError: naming the field and the remedy.
    """
    if any(config.use_vllm):
        raise ValueError(
            "use_vllm=True, but under torchrun policies sample from the models that they train; leave it out, or set backend "
            "ray and begin the run without torchrun"
        )
    check_sharding(config, config.policies())
    if config.backend == "ray":
        raise ValueError(
            "backend='ray', but torchrun has begun the processes already; leave backend out, or start the run without torchrun"
        )
    if config.placement != "shared":
        raise ValueError(
            f"placement={config.placement!r}, but under torchrun every policy is on all processes, and they take turns; use "
            "'shared'"
        )


class ShardedLogProbs(torch.nn.Module):
    """`TokenLogProbs` of a model in shards.

    Args:
        logprobs: of a whole model, which stays as it is: its weights are copied, layer by layer.
        mesh: the processes.
        trained: whether its trainable parameters are to be float32 masters; otherwise nothing has a gradient.

    Attributes:
        model: the sharded one.
    """

    def __init__(self, logprobs: TokenLogProbs, mesh: DeviceMesh, *, trained: bool) -> None:
        super().__init__()
        whole = list(logprobs.model.parameters())
        shells = {id(parameter): _shell(parameter, trained) for parameter in whole}
        sources = {shells[id(parameter)]: parameter for parameter in whole}
        self._logprobs = copy.deepcopy(logprobs, dict(shells))
        self.model = self._logprobs.model
        precision = MixedPrecisionPolicy(
            param_dtype=self.model.dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
        for module in (*_layers(self.model), self):
            for shell in module.parameters():
                if shell in sources:
                    shell.data = sources.pop(shell).detach().to(shell.dtype)
            # Also the outermost one's, which would otherwise keep the weights that it has, while the masters move on.
            fully_shard(module, mesh=mesh, mp_policy=precision, reshard_after_forward=True)
        for module in self.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)

    def forward(self, packed: Packed) -> torch.Tensor:
        """(B, T) float32, nats; 0 where no token is weighted."""
        return self._logprobs(_in_two_passes(packed)).clone()  # FSDP wants no view


class ShardedOptimizer(MasterOptimizer):
    """`MasterOptimizer` of a model in shards, which are the masters; its state is saved and loaded as that of a whole model.

    Args:
        whole: the model that samples; it has no weights while others are `resident`, and the present ones otherwise.
        sharded: the same model, which is trained.
        optimizer_class: a PyTorch optimizer.
        ranks: the processes.
        **kwargs: the optimizer's arguments.
    """

    def __init__(
        self,
        whole: PreTrainedModel,
        sharded: PreTrainedModel,
        optimizer_class: type[torch.optim.Optimizer],
        ranks: Ranks,
        **kwargs: Any,
    ) -> None:
        super().__init__(sharded.parameters(), optimizer_class, **kwargs)
        self._ranks = ranks
        self._whole = list(zip(whole.parameters(), sharded.parameters(), strict=True))
        trained = {id(parameter) for parameter in self.parameters}
        self._whole_trained = [parameter for parameter, shard in self._whole if id(shard) in trained]

    @contextmanager
    def resident(self) -> Iterator[None]:
        """Within it only the shards are in memory, so that there can be backward passes and steps.

        After an error they stay so: the other processes may be elsewhere, so nothing can be gathered from them.
        """
        for parameter, _ in self._whole:
            parameter.data = parameter.data.new_empty(0)
        yield
        for parameter, shard in self._whole:
            parameter.data = _whole(shard.detach().to(parameter.dtype))

    @property
    def read_in_parts(self) -> bool:
        """Whether a saved state is best read part by part, as it is taken over."""
        return True

    def finite(self) -> bool:
        """Whether all weights that are trained are finite; all processes have them whole, and find the same."""
        return all_finite(self._whole_trained)

    def clip_gradients(self, max_norm: float) -> float:
        """Scale the gradients of all processes down to a norm; returns what it was."""
        norm = get_total_norm([master.grad for master in self.masters if master.grad is not None])
        total = _whole(norm)
        clip_grads_with_norm_(self.masters, max_norm, total)
        return float(total)

    def state_dict(self) -> dict[str, Any]:
        """`MasterOptimizer`'s, of the whole model, in CPU memory; without tensors in all processes but the first."""
        state = self.optimizer.state_dict()
        gathered = {
            index: {key: self._collected(value) for key, value in values.items()}
            for index, values in state["state"].items()
        }
        masters = [
            self._collected(master.detach()) if parameter.dtype != master.dtype else None
            for parameter, master in zip(self._whole_trained, self.masters, strict=True)
        ]
        return {"optimizer": {**state, "state": gathered}, "masters": masters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave, of any number of processes; the whole model's weights are restored before."""
        saved = state["optimizer"]["state"]
        parts = {
            index: {key: _like(value, self.masters[index]) for key, value in values.items()}
            for index, values in saved.items()
        }
        self.optimizer.load_state_dict({**state["optimizer"], "state": parts})
        with torch.no_grad():
            for parameter, master, whole in zip(self._whole_trained, self.masters, state["masters"], strict=True):
                master.copy_(_like(parameter.detach() if whole is None else whole, master))

    def _collected(self, value: Any) -> Any:
        """A value of the state, whole, in the first process."""
        if not isinstance(value, DTensor):
            return value
        whole = _whole(value)
        return whole.cpu() if self._ranks.first else None


def sharded_learner(
    agent: str,
    model: PreTrainedModel,
    config: LearnerConfig,
    ranks: Ranks,
    optimizer_class: type[torch.optim.Optimizer],
    **arguments: Any,
) -> Learner:
    """A learner of a copy of a model in shards; the model itself gets the weights that were learnt after every update.

    Args:
        agent: the policy's name.
        model: whole, on this process's device.
        config: how rows are executed.
        ranks: the processes.
        optimizer_class: a PyTorch optimizer, with its arguments.
    """
    mesh = init_device_mesh(model.device.type, (ranks.size,))
    logprobs = TokenLogProbs(model, config.temperature)
    forward = ShardedLogProbs(logprobs, mesh, trained=True)
    reference = ShardedLogProbs(logprobs, mesh, trained=False).eval() if config.loss.beta else None
    optimizer = ShardedOptimizer(model, forward.model, optimizer_class, ranks, **arguments)
    return Learner(agent, forward.model, optimizer, config, Passes(forward, reference, ranks))


def _shell(parameter: torch.nn.Parameter, trained: bool) -> torch.nn.Parameter:
    """A parameter without elements, in the type that it is to be kept in."""
    has_gradient = trained and parameter.requires_grad
    dtype = torch.promote_types(parameter.dtype, torch.float32) if has_gradient else parameter.dtype
    return torch.nn.Parameter(torch.empty(0, dtype=dtype, device=parameter.device), requires_grad=has_gradient)


def _layers(model: PreTrainedModel) -> Iterator[torch.nn.Module]:
    """The transformer's layers, by the names under which Transformers knows that they belong together."""
    names = set(model._no_split_modules or ())
    yield from (module for module in model.modules() if type(module).__name__ in names)


def _in_two_passes(packed: Packed) -> Packed:
    """The same rows, to be computed in two passes over the layers, prompts and tails, whatever they are.

    Nothing is made of what the prompts have in common, which would be another pass; and where every tail is one token, it
    stands in two columns, since otherwise there would be no second one.
    """
    packed = replace(packed, common=0)
    if packed.tail_ids.shape[1] > 1:
        return packed
    pad = torch.nn.functional.pad
    return replace(
        packed,
        tail_ids=pad(packed.tail_ids, (0, 1)),
        tail_mask=pad(packed.tail_mask, (0, 1)),
        weighted=2 * packed.weighted,
    )


def _whole(value: torch.Tensor) -> torch.Tensor:
    """All of a tensor of which each process has a part."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _like(value: Any, master: torch.Tensor) -> Any:
    """This process's part of a whole tensor, as a master of the same shape is cut; other tensors are kept by all processes."""
    if not isinstance(master, DTensor) or not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    placements = master.placements if value.shape == master.shape else [Replicate()]
    return distribute_tensor(value.to(master.device), master.device_mesh, placements, src_data_rank=None)
