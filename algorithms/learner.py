"""The learner: executes training rows on one model. It does not know which algorithm made them.

One update of a step: rows without an old log-prob get the learner's own snapshot; the problems are cut into minibatches; each
minibatch is accumulated over micro-batches and makes one optimizer step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from transformers import PreTrainedModel

from algorithms.adapters import AdapterReference, has_adapter
from algorithms.errors import NonFiniteError
from algorithms.logprobs import TokenLogProbs
from algorithms.losses import Denominators, LossConfig, batch_loss, denominators
from algorithms.memory import keep_freed_memory
from algorithms.metrics import UpdateMeter
from algorithms.optimization import MasterOptimizer, ScheduleType, scheduled_learning_rate
from algorithms.packing import Packed, micro_batches, pack
from algorithms.ranks import ALONE, Ranks
from algorithms.samples import Sample, collate, make_sample


@dataclass(frozen=True)
class LearnerConfig:
    """How rows are executed.

    Attributes:
        loss: the loss.
        temperature: of the log-probs, as at sampling.
        learning_rate: its peak.
        lr_scheduler_type, warmup_steps: the schedule, in optimizer updates.
        total_updates: optimizer updates of the whole run.
        micro_batch_size: rows per forward pass.
        problems_per_minibatch: problems per optimizer update.
        num_iterations: passes over the step's rows.
        max_grad_norm: gradients are scaled down to this norm.
        max_skipped_updates: so many updates in a row without a finite loss and gradient stop the run.
        has_engine: whether another engine than the model samples, so that the old log-probs of own rows are the engine's: the
            learner takes its own snapshot instead, and measures the difference.
    """

    loss: LossConfig
    temperature: float = 1.0
    learning_rate: float = 1e-6
    lr_scheduler_type: ScheduleType = "constant"
    warmup_steps: int = 0
    total_updates: int = 1
    micro_batch_size: int = 8
    problems_per_minibatch: int = 1
    num_iterations: int = 1
    max_grad_norm: float = 1.0
    max_skipped_updates: int = 5
    has_engine: bool = False


class LogProbs(Protocol):
    """Log-probs (B, T) of packed rows under a model, with gradients; see `TokenLogProbs`."""

    model: PreTrainedModel

    def __call__(self, packed: Packed) -> torch.Tensor:
        """(B, T) float32, nats."""
        ...


@dataclass(frozen=True)
class Passes:
    """How a learner's forward passes are made.

    Attributes:
        forward: under the trained model.
        reference: under the policy as it began; None without a KL.
        ranks: the processes that share the passes of a minibatch.
    """

    forward: LogProbs
    reference: Callable[[Packed], torch.Tensor] | None
    ranks: Ranks = ALONE


def plain_passes(model: PreTrainedModel, config: LearnerConfig) -> Passes:
    """Those of a model in this process."""
    reference: TokenLogProbs | AdapterReference | None = None
    if config.loss.beta and has_adapter(model):
        reference = AdapterReference(model, config.temperature)
    elif config.loss.beta:
        reference = TokenLogProbs(copy.deepcopy(model).eval().requires_grad_(False), config.temperature)
    return Passes(TokenLogProbs(model, config.temperature), reference)


class Learner:
    """One policy's model, optimizer and counters.

    Args:
        agent: the policy's name.
        model: trained in place.
        optimizer: over the model's parameters.
        config: how rows are executed.
        passes: how forward passes are made; by default with the model, in this process.

    Attributes:
        version: optimizer updates applied so far.
        due: optimizer updates due so far: the applied ones, the skipped ones, and those that nothing moved. The schedule
            goes by them, so that runs of different algorithms have the same learning rate in the same step.
        skipped: updates skipped so far because loss or gradient was not finite.
    """

    def __init__(
        self,
        agent: str,
        model: PreTrainedModel,
        optimizer: MasterOptimizer,
        config: LearnerConfig,
        passes: Passes | None = None,
    ) -> None:
        self.agent = agent
        self.model = model
        self.optimizer = optimizer
        self.config = config
        self.version = 0
        self.due = 0
        self.skipped = 0
        self._skipped_in_a_row = 0
        if model.device.type == "cpu":
            keep_freed_memory()
        optimizer.embed_sparsely(model.get_input_embeddings())
        passes = passes or plain_passes(model, config)
        self._forward, self._reference, self._ranks = passes.forward, passes.reference, passes.ranks

    def update(self, problems: Sequence[Sequence[Sample]]) -> dict[str, float]:
        """Learn from one step's rows.

        Args:
            problems: for each problem its rows, in any number.

        Returns:
            Metrics of the update; see `UpdateMeter`.

        Raises:
            NonFiniteError: if too many updates in a row had to be skipped, or weights are no longer finite.
        """
        meter = UpdateMeter()
        size = self.config.problems_per_minibatch
        minibatches = [problems[i : i + size] for i in range(0, len(problems), size)]
        # A step of one update computes the snapshot in passing; see `_optimize`.
        snapshot = len(minibatches) * self.config.num_iterations > 1
        old = self._old_logprobs([row for rows in problems for row in rows], snapshot=snapshot)
        divide_by = denominators(minibatches, self.config.loss.loss_type)
        version = self.version
        for _ in range(self.config.num_iterations):
            for minibatch, divisors in zip(minibatches, divide_by, strict=True):
                rows = [row for problem in minibatch for row in problem]
                trained = [row for row in rows if self._moves(row)]
                meter.count("rows_trained", len(trained))
                meter.count("rows_skipped", len(rows) - len(trained))
                if trained:
                    with self.optimizer.resident():
                        self._optimize(trained, old, divisors, meter, fresh=self.version == version)
                self.due += 1
        if self.version > version:
            self.check_weights()
        return {**meter.result(), "policy_version": float(self.version), "skipped_updates": float(self.skipped)}

    def check_weights(self) -> None:
        """Refuse to go on with broken weights.

        Raises:
            NonFiniteError: if one is NaN or infinite.
        """
        if not self.optimizer.finite():
            raise NonFiniteError(
                f"{self.agent}: weights are no longer finite after {self.version} updates; they are not saved. Go on from the "
                "last checkpoint, if it comes again with a lower learning_rate or with dtype fp32"
            )

    def logprobs(self, rows: Sequence[tuple[Sequence[int] | np.ndarray, int]]) -> list[np.ndarray]:
        """Log-probs of completions under the present weights, at the learner's temperature, without dropout.

        Args:
            rows: for each row its token ids (T,) and the index of its first completion token.

        Returns:
            For each row (T - start,) float32, nats.
        """
        samples = [make_sample(ids[:start], ids[start:], nll_weight=1.0, source=self.agent) for ids, start in rows]
        places = {id(sample): place for place, sample in enumerate(samples)}
        results: dict[int, np.ndarray] = {}
        self.model.eval()
        with torch.no_grad():
            for part, counts in self._ranks.shared(micro_batches(samples, self.config.micro_batch_size)):
                logprobs = self._forward(pack(part, self._device)).cpu().numpy()
                if counts:
                    results |= {places[id(sample)]: row for sample, row in zip(part, logprobs, strict=True)}
        for others in self._ranks.gather(results):
            results |= others
        return [
            results[p][start : len(s.token_ids)] for p, (s, (_, start)) in enumerate(zip(samples, rows, strict=True))
        ]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the model's weights."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
            "due": self.due,
            "skipped": self.skipped,
            "skipped_in_a_row": self._skipped_in_a_row,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.version, self.due, self.skipped = state["version"], state["due"], state["skipped"]
        self._skipped_in_a_row = state["skipped_in_a_row"]

    def _moves(self, row: Sample) -> bool:
        """Whether a row needs a forward pass: it has a gradient, or a KL term."""
        return row.has_gradient or (self._reference is not None and bool(row.loss_mask.any()))

    def _is_engines(self, row: Sample) -> bool:
        """Whether a row's old log-probs are those of another engine."""
        return self.config.has_engine and row.source == self.agent

    def _old_logprobs(self, rows: Sequence[Sample], *, snapshot: bool) -> dict[int, np.ndarray]:
        """For each row (by identity) its (T,) old log-probs: the recorded ones, or the learner's snapshot (0 without)."""
        recorded = {id(row): None if self._is_engines(row) else row.old_logprobs for row in rows}
        old = {id(row): np.zeros_like(row.advantages) if (r := recorded[id(row)]) is None else r for row in rows}
        if not snapshot:
            return old
        missing = [row for row in rows if recorded[id(row)] is None and row.loss_mask.any() and self._moves(row)]
        starts = [int(row.loss_mask.argmax()) for row in missing]
        present = self.logprobs([(row.token_ids, start) for row, start in zip(missing, starts, strict=True)])
        for row, start, logprobs in zip(missing, starts, present, strict=True):
            old[id(row)][start:] = logprobs
        return old

    def _optimize(
        self,
        rows: Sequence[Sample],
        old: dict[int, np.ndarray],
        divide_by: Denominators,
        meter: UpdateMeter,
        *,
        fresh: bool,
    ) -> None:
        """One optimizer update from one minibatch."""
        self.model.train()
        total, seen = 0.0, UpdateMeter()
        for part, counts in self._ranks.shared(micro_batches(rows, self.config.micro_batch_size)):
            packed = pack(part, self._device)
            batch = collate(
                part, [old[id(row)] for row in part], self.agent, self._device, has_engine=self.config.has_engine
            )
            reference = None
            if self._reference is not None:
                with torch.no_grad():
                    reference = self._reference(packed)
            logprobs = self._forward(packed)
            if fresh:
                # The weights are still those of the snapshot: a ratio of exactly 1, not of 1 up to the noise of a batch of
                # another shape, which is considerable in bfloat16.
                old_logprobs = torch.where(batch.unrecorded.unsqueeze(-1), logprobs.detach(), batch.old_logprobs)
                batch = replace(batch, old_logprobs=old_logprobs)
            terms = batch_loss(logprobs, reference, batch, self.config.loss, divide_by)
            (terms.total if counts else 0 * terms.total).backward()
            if counts:
                total += float(terms.total.detach())
                seen.observe(batch, terms, self.config.loss, fresh=fresh)
        everywhere = self._ranks.gather((total, seen))
        total = sum(part for part, _ in everywhere)
        for _, part_seen in everywhere:
            meter.add(part_seen)
        grad_norm = self.optimizer.clip_gradients(self.config.max_grad_norm)
        if not (math.isfinite(total) and math.isfinite(grad_norm)):
            self._skip()
            return
        learning_rate = scheduled_learning_rate(
            self.config.learning_rate,
            self.config.lr_scheduler_type,
            self.due,
            self.config.total_updates,
            self.config.warmup_steps,
        )
        self.optimizer.step(learning_rate)
        self.version += 1
        self._skipped_in_a_row = 0
        meter.mean("loss", total)
        meter.mean("grad_norm", grad_norm)
        meter.mean("learning_rate", learning_rate)

    def _skip(self) -> None:
        self.optimizer.zero_grad()
        self.skipped += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= self.config.max_skipped_updates:
            raise NonFiniteError(
                f"{self.agent}: loss or gradient was not finite in {self._skipped_in_a_row} updates in a row; "
                "lower learning_rate, set delta, or use dtype fp32"
            )

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device
