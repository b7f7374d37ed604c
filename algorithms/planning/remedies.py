"""What would fit where something does not: changes of one setting each, tried by planning again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from algorithms.planning.cluster import Cluster
from algorithms.planning.estimates import Model, Work
from algorithms.planning.modes import DoesNotFitError, Pool, make

_MOST_NODES = 16
"""Nodes of a cluster that is looked for."""

Adapted = Callable[[], tuple[Model, ...]]
"""The pool's architectures with adapters."""


def remedies(pool: Pool, mode: str, adapted: Adapted | None = None) -> list[str]:
    """Changes that make the pool fit, each by itself; what changes results least comes first.

    Args:
        pool: which does not fit.
        mode: of the placement.
        adapted: where no policy has an adapter and PEFT is there.

    Returns:
        Such as `per_device_train_batch_size=4`, or `2 GPUs`; empty if nothing of it helps.
    """
    return [name for name, changed, changed_mode in _changes(pool, mode, adapted) if fits(changed, changed_mode)]


def fits(pool: Pool, mode: str) -> bool:
    """Whether there is a plan."""
    try:
        make(pool, mode)
    except DoesNotFitError:
        return False
    return True


def _smaller(field: Literal["micro_batch", "batch"], n: int, work: Work) -> Work:
    """The work with at most n rows at a time."""
    changed: dict[str, Any] = {field: min(getattr(work, field), n)}
    return replace(work, **changed)


def _changes(pool: Pool, mode: str, adapted: Adapted | None) -> Iterator[tuple[str, Pool, str]]:
    """(What is changed, the pool, the mode); of numbers the first that fits."""
    works = [work for _, work in pool.policies]
    rows = max(work.micro_batch for work in works)
    smaller = [rows >> shift for shift in range(1, rows.bit_length())]
    yield from _first(
        (
            f"per_device_train_batch_size={n}",
            _with(pool, partial(_smaller, "micro_batch", n)),
            mode,
        )
        for n in smaller
    )
    batch = max(min(work.batch, work.generated) for work in works)
    yield from _first(
        (f"generation_batch_size={n}", _with(pool, partial(_smaller, "batch", n)), mode)
        for n in (batch >> shift for shift in range(1, batch.bit_length()))
    )
    if not all(work.checkpointing for work in works):
        yield "gradient_checkpointing", _with(pool, lambda w: replace(w, checkpointing=True)), mode
    if not all(work.offload for work in works) and _may_offload(pool, mode):
        yield "offload_optimizer", _with(pool, lambda w: replace(w, offload=True)), mode
    if any(work.dtype == "fp32" for work in works):
        yield "dtype=bf16", _with(pool, lambda w: replace(w, dtype="bf16")), mode
    # Without engines colocated is dedicated.
    engines = pool.processes == "ray" and any(work.vllm is not None for _, work in pool.policies)
    for other in ("shared", "dedicated", "colocated") if engines else ("shared", "dedicated"):
        if other != mode:
            yield f"placement={other}", pool, other
    if adapted is not None and not any(model.adapter for model, _ in pool.policies):
        models = adapted()
        changed = tuple((model, work) for model, (_, work) in zip(models, pool.policies, strict=True))
        yield "use_peft", replace(pool, policies=changed), mode
    if pool.on_gpus:
        yield from _first((name, _on(pool, cluster), mode) for name, cluster in _larger(pool))


def _may_offload(pool: Pool, mode: str) -> bool:
    """Whether `offload_optimizer` would change something: shards exclude it, and `shared` does it by itself on GPUs."""
    return pool.processes == "ray" or (pool.processes == "one" and not (mode == "shared" and pool.on_gpus))


def _first(changes: Iterator[tuple[str, Pool, str]]) -> Iterator[tuple[str, Pool, str]]:
    """The first one that fits, if there is one."""
    yield from ([change] if (change := next((c for c in changes if fits(*c[1:])), None)) is not None else [])


def _with(pool: Pool, change: Callable[[Work], Work]) -> Pool:
    return replace(pool, policies=tuple((model, change(work)) for model, work in pool.policies))


def _on(pool: Pool, cluster: Cluster) -> Pool:
    return replace(pool, cluster=cluster, devices=cluster.devices("cuda"))


def _larger(pool: Pool) -> Iterator[tuple[str, Cluster]]:
    """Clusters of nodes like the first one with more GPUs: up to eight in a node, then more nodes; the smallest first."""
    nodes, gpus = len(pool.nodes), max(map(len, pool.nodes))
    per_node = max(8, gpus)
    for count in range(nodes * gpus + 1, per_node + 1):
        yield f"{count} GPUs", pool.cluster.with_gpus(1, count)
    for count in range(2, 1 if pool.processes == "one" else _MOST_NODES + 1):
        if count * per_node > nodes * gpus:
            yield f"{count} nodes of {per_node} GPUs", pool.cluster.with_gpus(count, per_node)
