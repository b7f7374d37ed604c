"""The planner on random pools and clusters: every plan is one that can be carried out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from algorithms.planning import estimates
from algorithms.planning.cluster import GIB, Cluster, Node, chosen, described, parse_devices, show_devices, size
from algorithms.planning.estimates import Model, Vllm, Work
from algorithms.planning.modes import DoesNotFitError, Pool, Processes, make
from algorithms.planning.plan import Placement, Plan
from algorithms.planning.remedies import fits, remedies

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def llama(billions: float, layers: int = 32, heads: int = 32, kv_heads: int = 8, vocabulary: int = 128_000) -> Model:
    """A Llama of so many parameters, its head apart from its embedding."""
    head_size = 128
    width = heads * head_size
    total = int(billions * 1e9)
    return Model(
        parameters=total, trained=total, quantized=0, layers=layers, width=width, feed_forward=4 * width, heads=heads,
        kv_heads=kv_heads, head_size=head_size, vocabulary=vocabulary, embeddings=min(width * vocabulary, total // 4),
    )  # fmt: skip


def work(name: str, **changes: Any) -> Work:
    """512 completions of 1024 tokens."""
    return replace(
        Work(name, "bf16", generated=512, groups=64, completion=1024, batch=128, micro_batch=8, update_rows=128,
             checkpointing=True),
        **changes,
    )  # fmt: skip


def pool(cluster: Cluster, *policies: tuple[Model, Work], processes: Processes = "ray") -> Pool:
    return Pool(policies, cluster, cluster.devices(), processes)


def gpus(nodes: int, count: int, memory: int = 80) -> Cluster:
    return described({"nodes": nodes, "gpus": count, "gpu_memory": f"{memory}GiB", "memory": "1TiB"})


@st.composite
def pools(draw: st.DrawFn, *, cores: bool = False) -> Pool:
    """One to four policies of 0.05 to 14 billion parameters, on one to three nodes."""
    count = draw(st.integers(1, 4))
    policies = []
    for index in range(count):
        kv_heads = draw(st.sampled_from([1, 2, 4, 8]))
        model = llama(
            draw(st.sampled_from([0.05, 0.1] if cores else [0.1, 0.5, 1.5, 3, 7, 14])),
            layers=draw(st.sampled_from([8, 28])),
            heads=kv_heads * draw(st.sampled_from([1, 3, 4, 7])),
            kv_heads=kv_heads,
            vocabulary=draw(st.sampled_from([1000, 32_000, 150_000])),
        )
        if draw(st.booleans()):
            model = replace(model, adapter=True, trained=model.parameters // 100)
        policies.append(
            (
                model,
                work(
                    f"policy_{index}",
                    dtype=draw(st.sampled_from(["fp32", "bf16"])),
                    micro_batch=draw(st.sampled_from([1, 4, 8])),
                    checkpointing=draw(st.booleans()),
                    reference=draw(st.booleans()),
                    completion=draw(st.sampled_from([32, 512])) if cores else 1024,
                    vllm=draw(st.sampled_from([None, Vllm(GIB, 0.3), Vllm(GIB, 0.3, sleeps=True)])),
                    offload=draw(st.sampled_from([False, False, False, True])),
                ),
            )
        )
    nodes = draw(st.integers(1, 3))
    if cores:
        cluster = described(
            {"nodes": nodes, "cpus": draw(st.integers(1, 12)), "memory": f"{draw(st.integers(2, 256))}GiB"}
        )
    else:
        cluster = gpus(nodes, draw(st.integers(1, 8)), draw(st.sampled_from([24, 80, 141])))
    return pool(cluster, *policies)


def planned(pool: Pool, mode: str) -> Plan:
    try:
        return make(pool, mode)
    except DoesNotFitError:
        assume(False)
        raise


modes = st.sampled_from(["shared", "dedicated", "colocated"])
any_pool = st.one_of(pools(), pools(), pools(cores=True))


def test_with_ray_a_larger_policy_gets_more_gpus() -> None:
    policies = (llama(7, heads=32), work("large")), (llama(1.5, heads=12), work("small"))
    plan = make(pool(gpus(1, 8), *policies, processes="ray"), "dedicated")
    large, small = (len(p.processes_of_learner) for p in plan.placements)
    assert large + small == 8 and large > small >= 1
    # 7 B parameters: 12 bytes of masters and moments in 8 shards at most, and 2 whole.
    assert plan.placements[0].memory[0, "cuda:0"].resting == pytest.approx(7e9 * (12 / large + 2), rel=0.01)


@SLOW
@given(any_pool, modes)
def test_every_plan_is_valid(pool: Pool, mode: str) -> None:
    plan = planned(pool, mode)
    assert not plan.turns and not plan.one_process and not plan.overloaded()
    assert [p.name for p in plan.placements] == [w.name for _, w in pool.policies]
    memory: Counter[Any] = Counter()
    for p in plan.placements:
        # None starves, and there is nothing that does not exist.
        assert p.learner.devices and p.rollout.devices
        assert p.devices <= set(pool.devices)
        # A device does each of both once.
        assert len(set(p.learner.devices)) == len(p.learner.devices)
        assert len(set(p.rollout.devices)) == len(p.rollout.devices)
        assert p.micro_batch >= 1 and p.learner.seconds > 0 and p.rollout.seconds > 0
        learners = p.processes_of_learner
        assert len(learners) == p.learner.data_parallel <= p.work.update_rows
        assert len({(d.node, d.torch_name) for d in learners}) == len(learners), "a GPU each, or a node's cores"
        assert not p.work.offload or len(learners) == 1
        if p.engine:
            assert p.work.vllm is not None and mode == "dedicated"
            assert not set(p.learner.devices) & set(p.rollout.devices)
            assert p.model.heads % p.rollout.tensor_parallel == 0
            assert len(p.engines) == p.rollout.data_parallel
            assert tuple(device for engine in p.engines for device in engine) == p.rollout.devices
            for engine in p.engines:
                assert len(engine) == p.rollout.tensor_parallel and len({device.node for device in engine}) == 1
        else:
            assert p.learner.devices == p.rollout.devices and p.engines == ()
            # All of a policy's GPUs sample where it does so itself, and where it is asked for.
            assert len(learners) == 1 or p.work.vllm is None or mode == "colocated"
        for room, need in p.memory.items():
            memory[room] += need.peak
    if mode == "shared":
        assert all(len(p.processes_of_learner) == 1 for p in plan.placements)
    else:
        assert set(Counter(device for p in plan.placements for device in p.devices).values()) == {1}
    # Every room holds what all need at their peaks, since nobody waits.
    for (node, name), need in memory.items():
        capacity = pool.cluster.nodes[node].memory if name == "cpu" else pool.cluster.nodes[node].gpu_memory
        assert need < capacity


@SLOW
@given(any_pool, modes, st.randoms(use_true_random=False))
def test_permuting_policies_permutes_the_plan(pool: Pool, mode: str, random: Any) -> None:
    plan = planned(pool, mode)
    assert make(pool, mode) == plan, "the same again"
    order = list(range(len(pool.policies)))
    random.shuffle(order)
    permuted = make(replace(pool, policies=tuple(pool.policies[i] for i in order)), mode)
    assert permuted.placements == tuple(plan.placements[i] for i in order)


@SLOW
@given(any_pool, modes, st.sampled_from(["nodes", "devices", "memory"]))
def test_more_resources_never_make_a_pool_unfit(small: Pool, mode: str, what: str) -> None:
    planned(small, mode)
    nodes = small.cluster.nodes
    if what == "nodes":
        nodes += nodes[:1]
    elif what == "devices":
        nodes = tuple(replace(n, gpus=n.gpus + bool(n.gpus), cpus=n.cpus + 1) for n in nodes)
    else:
        nodes = tuple(replace(n, gpu_memory=n.gpu_memory + GIB, memory=n.memory + GIB) for n in nodes)
    cluster = replace(small.cluster, nodes=nodes)
    assert fits(replace(small, cluster=cluster, devices=cluster.devices()), mode)


@SLOW
@given(pools(), st.sampled_from(["dedicated", "colocated"]))
def test_no_device_is_better_elsewhere(pool: Pool, mode: str) -> None:
    """On one node, where every number of GPUs can be had: moving one GPU, or taking a free one, makes no step faster."""
    one = replace(pool.cluster, nodes=pool.cluster.nodes[:1])
    pool = replace(pool, cluster=one, devices=one.devices())
    plan = planned(pool, mode)
    counts = [len(p.devices) for p in plan.placements]
    slowest = max(plan.placements, key=lambda p: p.seconds)
    index = plan.placements.index(slowest)

    def alone(i: int, count: int) -> float:
        """Seconds of one policy with so many GPUs; infinite if it does not fit."""
        if count < 1:
            return float("inf")
        single = replace(pool, policies=(pool.policies[i],), devices=pool.devices[:count])
        return make(single, mode).seconds_per_step() if fits(single, mode) else float("inf")

    faster = alone(index, counts[index] + 1)
    if sum(counts) < len(pool.devices):
        assert faster >= slowest.seconds
    for other in set(range(len(counts))) - {index}:
        assert max(faster, alone(other, counts[other] - 1)) >= slowest.seconds


def test_a_larger_policy_gets_more() -> None:
    small, large = (llama(1.5, heads=12, kv_heads=2), work("small")), (llama(7, heads=28, kv_heads=4), work("large"))
    plan = make(pool(gpus(1, 8), small, large), "dedicated")
    first, second = plan.placements
    assert len(second.devices) > len(first.devices)
    assert len(first.devices) + len(second.devices) == 8
    even = make(pool(gpus(1, 4), small, large), "dedicated")
    assert plan.seconds_per_step() < even.seconds_per_step()
    assert not set(first.devices) & set(second.devices)


def test_cores_are_split_by_need() -> None:
    cluster = described({"cpus": 8, "memory": "64GiB"})
    model, larger = llama(0.1, heads=4, kv_heads=4, vocabulary=1000), llama(0.3, heads=4, kv_heads=4, vocabulary=1000)
    plan = make(pool(cluster, (model, work("a", completion=64)), (larger, work("b", completion=64))), "dedicated")
    a, b = plan.placements
    assert a.threads + b.threads == 8 and b.threads > a.threads >= 1
    assert plan.threads == b.threads
    policies = (model, work("a", completion=64)), (larger, work("b", completion=64))
    turns = make(pool(cluster, *policies, processes="one"), "shared")
    assert [p.threads for p in turns.placements] == [8, 8]
    assert turns.seconds_per_step() == pytest.approx(sum(p.seconds for p in turns.placements))
    assert plan.seconds_per_step() == max(a.seconds, b.seconds)


class TestEstimates:
    """By hand: one layer, width 2, inner width 3, one head of 2, five tokens of vocabulary."""

    model = Model(
        parameters=100, trained=100, quantized=0, layers=1, width=2, feed_forward=3, heads=1, kv_heads=1, head_size=2,
        vocabulary=5, embeddings=0,
    )  # fmt: skip
    work = Work("p", "bf16", generated=4, groups=2, completion=6, batch=4, micro_batch=2, update_rows=4)

    def test_state(self) -> None:
        # Weights 2 bytes, masters 4 and two moments of 4 at rest; gradients of 4 only in an update: 18 in all.
        learner = estimates.learner_memory(self.model, self.work, 1, "cpu")
        activations = estimates.activation_bytes(self.model, self.work, 2, "cpu")
        assert (learner.resting, learner.learning) == (1400, 400 + activations)
        offloaded = estimates.learner_memory(self.model, replace(self.work, offload=True), 1, "cpu")
        assert (offloaded.resting, offloaded.learning) == (200, 400 + activations)
        on_gpu = estimates.learner_memory(self.model, replace(self.work, offload=True), 1, "cuda")
        assert (on_gpu.resting, on_gpu.host) == (200, 1200)
        fp32 = estimates.learner_memory(self.model, replace(self.work, dtype="fp32"), 1, "cpu")
        assert fp32.resting == 1200
        with_reference = estimates.learner_memory(self.model, replace(self.work, reference=True), 1, "cpu")
        assert with_reference.resting == 1600

    def test_shards(self) -> None:
        # Two devices: half of 1400; embedding and head (10 parameters, shared) and the one layer of 90 twice in bfloat16, its
        # gradient in float32; one row on each, at first.
        work = replace(self.work, update_rows=2)
        learner = estimates.learner_memory(self.model, work, 2, "cuda")
        assert learner.resting == 700
        assert estimates.micro_batch(work, 2) == 1
        activations = estimates.activation_bytes(self.model, work, 1, "cuda")
        # And a gradient of the whole head, 10 parameters in two bytes.
        assert learner.learning == 200 + 2 * (10 + 2 * 90) + 4 * 90 + 20 + activations

    def test_activations(self) -> None:
        # 2 rows of 6 tokens, and the prompt of their group, 128: 140 tokens. A token keeps 4 x 2 (norms), 2 x 2 (queries,
        # outputs), 4 x 2 (keys and values), 4 x 3 (feed-forward) = 32 numbers; keys and values of the prompt once more for each
        # row, 2 x 128 x 2 x 2 = 1024; attention weights 2 x 1 x 6 x 134 = 1608. All in two bytes.
        layer = 140 * 32 + 1024 + 1608
        # Before the head 12 x 2 numbers of 2 and of 4 bytes; logits 12 x 5 of 2 bytes; a tile and its gradient of 4 each.
        expected = 2 * layer + 12 * 2 * 6 + 12 * 5 * 2 + 12 * 5 * 8
        assert estimates.activation_bytes(self.model, self.work, 2, "cpu") == expected

    def test_cache(self) -> None:
        # 134 tokens take 160 columns; keys and values of two numbers of two bytes: 1280 a row. Logits 5 x (2 + 4).
        assert estimates.cache_bytes(self.model, self.work, 4) == 4 * (1280 + 30)
        wide = replace(self.model, heads=4, kv_heads=2)
        assert estimates.cache_bytes(wide, self.work, 1, parts=2) == 1280 + 30
        assert estimates.cache_bytes(wide, self.work, 1, parts=4) == 1280 + 30, "keys are repeated, not split further"

    def test_heads_are_split_evenly(self) -> None:
        wide = replace(self.model, heads=28, kv_heads=4)
        assert [parts for parts in range(1, 15) if wide.splits_into(parts)] == [1, 2, 4]

    def test_work_grows_time(self) -> None:
        cluster = gpus(1, 8)
        model, small = llama(7), work("p")
        rate = estimates.speed(cluster, "cuda", "bf16")
        longer = replace(small, completion=2048)
        assert estimates.rollout_seconds(model, longer, rate, 1, 1) > 2 * estimates.rollout_seconds(
            model, small, rate, 1, 1
        )
        assert estimates.update_seconds(model, longer, rate, 1) > estimates.update_seconds(model, small, rate, 1)
        assert estimates.rollout_seconds(model, small, rate, 1, 4) < estimates.rollout_seconds(model, small, rate, 1, 1)


class TestRemedies:
    """What is said to fit does, and what is not said to does not."""

    def test_smallest_number_of_gpus(self) -> None:
        # 7 billion at 18 bytes are 117 GiB: not on one of 80 GiB.
        unfit = pool(gpus(1, 1), (llama(7), work("p")))
        with pytest.raises(DoesNotFitError, match=r"p needs about .* on each of 1 devices that learn, with 80.0 GiB"):
            make(unfit, "dedicated")
        found = [text for text in remedies(unfit, "dedicated") if text.endswith("GPUs")]
        assert len(found) == 1
        count = int(found[0].split()[0])
        assert fits(pool(gpus(1, count), *unfit.policies), "dedicated")
        assert not fits(pool(gpus(1, count - 1), *unfit.policies), "dedicated")

    def test_largest_micro_batch(self) -> None:
        roomy = (llama(1.5, heads=12, kv_heads=2), work("p", micro_batch=64, checkpointing=False))
        unfit = pool(gpus(1, 1), roomy)
        found = remedies(unfit, "shared")
        assert "gradient_checkpointing" in found
        [batch] = [int(text.partition("=")[2]) for text in found if text.startswith("per_device_train_batch_size")]
        assert fits(pool(gpus(1, 1), (roomy[0], replace(roomy[1], micro_batch=batch))), "shared")
        assert not fits(pool(gpus(1, 1), (roomy[0], replace(roomy[1], micro_batch=2 * batch))), "shared")

    def test_adapters(self) -> None:
        model = llama(7)
        small = replace(model, adapter=True, trained=model.parameters // 100)
        unfit = pool(gpus(1, 1), (model, work("p", micro_batch=1)))
        assert "use_peft" in remedies(unfit, "shared", lambda: (small,))
        assert "use_peft" not in remedies(unfit, "shared")

    def test_one_process_is_not_advised_to_be_on_several_nodes(self) -> None:
        nine = [(llama(0.5, heads=8), work(f"p{i}")) for i in range(9)]
        assert not [text for text in remedies(pool(gpus(1, 4), *nine, processes="one"), "dedicated") if "nodes" in text]

    def test_a_share_of_a_gpu_that_is_too_small_for_the_weights(self) -> None:
        large = llama(14, heads=40), work("p", vllm=Vllm(GIB, 0.3))
        message = r"vllm_gpu_memory_utilization=0.3 of 80.0 GiB is too little for vLLM's copy of p"
        with pytest.raises(DoesNotFitError, match=message):
            make(pool(gpus(1, 8), large), "colocated")
        assert make(pool(gpus(1, 8), large), "dedicated").placements[0].engine

    def test_too_few_devices(self) -> None:
        unfit = pool(gpus(1, 1), *((llama(0.5, heads=8), work(name)) for name in "abc"))
        with pytest.raises(DoesNotFitError, match=r"placement='dedicated' needs one device for each of 3 policies"):
            make(unfit, "dedicated")
        found = remedies(unfit, "dedicated")
        assert "placement=shared" in found and "3 GPUs" in found


class TestExplicit:
    """Plans that users write."""

    two = (
        (llama(1.5, heads=12, kv_heads=2), work("a", vllm=Vllm(GIB, 0.1))),
        (llama(3, heads=16, kv_heads=2), work("b", vllm=Vllm(GIB, 0.1))),
    )

    def test_as_written(self) -> None:
        plan = make(
            pool(gpus(2, 4), *self.two),
            "mine.yaml",
            {
                "a": {"learner": ["cuda:0-1"], "rollout": ["cuda:2-3"], "tensor_parallel": 2},
                "b": {"learner": ["1/cuda:0-3"]},
            },
        )
        a, b = plan.placements
        assert [str(d) for d in a.learner.devices] == ["0/cuda:0", "0/cuda:1"]
        assert (a.rollout.tensor_parallel, a.rollout.data_parallel, len(a.engines)) == (2, 1, 1)
        assert not b.engine and len(b.processes_of_learner) == 4
        assert plan.device("b") == "cuda:0" and not plan.turns

    def test_an_engine_on_cores(self) -> None:
        cluster = described({"nodes": 2, "cpus": 4, "memory": "64GiB"})
        small = llama(0.1, heads=4, kv_heads=4, vocabulary=1000), work("a", vllm=Vllm(GIB, 0.3), completion=64)
        assignment = {"a": {"learner": ["0/cpu:0-1"], "rollout": ["0/cpu:2-3", "1/cpu:0-3"]}}
        plan = make(pool(cluster, small), "mine.yaml", assignment)
        (placement,) = plan.placements
        assert [len(engine) for engine in placement.engines] == [2, 4]
        assert (placement.threads, placement.processes((0, "cpu")), placement.processes((1, "cpu"))) == (2, 2, 1)
        # Weights and an untied head's packed copy of two bytes, a GiB of keys and values, 600 MiB, and twice the weights as
        # they are handed over.
        head = small[0].head
        assert placement.memory[1, "cpu"].resting == 2 * (10**8 + head) + GIB + (600 << 20) + 2 * 2 * 10**8

    @pytest.mark.parametrize(
        ("assignment", "message"),
        [
            ({"a": {"learner": ["cuda:0"]}}, "placement names a, but the policies are a, b"),
            (
                {"a": {"learner": ["cuda:0"]}, "b": {"learner": ["cuda:9"]}},
                "placement of b has 0/cuda:9, which does not exist",
            ),
            ({"a": {"learner": ["cuda:0"]}, "b": {"rollout": ["cuda:1"]}}, "placement of b is .*; write learner"),
            ({"a": {"learner": ["cuda:0"]}, "b": {"learner": ["gpu1"]}}, "'gpu1' is no device; write cuda:0"),
            ({"a": {"learner": ["cuda:0"]}, "b": {"learner": ["cuda:1", "cuda:1"]}}, "name each device once"),
            (
                {
                    "a": {"learner": ["cuda:0"], "rollout": ["cuda:1-3"], "tensor_parallel": 3},
                    "b": {"learner": ["1/cuda:1"]},
                },
                "placement of a has tensor_parallel=3; .* allows 1, 2",
            ),
            (
                {"a": {"learner": ["cuda:0-1"], "rollout": ["cuda:1-2"]}, "b": {"learner": ["1/cuda:1"]}},
                "placement of a lets some of its learner's devices sample, and not the others",
            ),
            (
                {"a": {"learner": ["cuda:0"], "rollout": ["cuda:1"]}, "b": {"learner": ["cuda:1"]}},
                "placement gives 0/cuda:1 to a, which has several devices, and to b",
            ),
            (
                {
                    "a": {"learner": ["cuda:0"], "rollout": ["cuda:1-3"], "tensor_parallel": 2},
                    "b": {"learner": ["1/cuda:1"]},
                },
                "placement of a would leave 0/cuda:3 idle: an engine takes 2 GPUs of one node",
            ),
            (
                {
                    "a": {"learner": ["cuda:0"], "rollout": ["cuda:1-2"], "tensor_parallel": True},
                    "b": {"learner": ["1/cuda:1"]},
                },
                "placement of a has tensor_parallel=True; .* allows 1, 2",
            ),
        ],
    )
    def test_mistakes(self, assignment: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make(pool(gpus(2, 4), *self.two), "mine.yaml", assignment)

    def test_two_policies_on_one_gpu_add_up(self) -> None:
        assignment = {"a": {"learner": ["cuda:0"]}, "b": {"learner": ["cuda:0"]}}
        with pytest.raises(DoesNotFitError, match=r"cuda:0 has 80.0 GiB, but a and b would need about"):
            make(pool(gpus(1, 2), *self.two), "mine.yaml", assignment)
        assert make(pool(gpus(1, 2, 141), *self.two), "mine.yaml", assignment).load((0, "cuda:0")) > 80 * GIB


class TestCluster:
    """Descriptions of machines."""

    def test_described(self) -> None:
        cluster = described(
            {"nodes": 2, "gpus": 8, "gpu_memory": "80GiB", "cpus": 96, "memory": "1TiB", "gpu_tflops": 990}
        )
        assert cluster == Cluster((Node(8, 80 * 2**30, 96, 2**40),) * 2, gpu_flops=990e12)
        assert len(cluster.devices()) == 16
        assert len(described({"cpus": 4}).devices()) == 4

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"gpu": 8}, "unknown key 'gpu'; use some of nodes, gpus"),
            ({"nodes": 0}, "nodes=0; give a whole number of at least 1"),
            ({"gpus": "8"}, "gpus='8'; give a whole number of at least 0"),
            ({"gpus": 8}, "no gpu_memory; give it too"),
            ({"gpus": 1, "gpu_memory": "much"}, "gpu_memory='much' is no size"),
            ({"gpus": 1, "gpu_memory": "80GiB", "gpu_tflops": 0}, "gpu_tflops=0; give a number above 0"),
        ],
    )
    def test_mistakes(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            described(options)

    def test_sizes(self) -> None:
        assert [size(text, "x") for text in ("80GiB", "1.5 TB", "512mb", 7)] == [
            80 * 2**30,
            1_500_000_000_000,
            512_000_000,
            7,
        ]

    def test_devices_are_read_as_they_are_shown(self) -> None:
        for text in ("cuda:0-2 cuda:5", "cpu:0-7"):
            devices = [device for word in text.split() for device in parse_devices(word)]
            assert show_devices(devices, node=False) == text
        assert show_devices(parse_devices("1/cuda:3"), node=True) == "1/cuda:3"

    def test_chosen(self) -> None:
        cluster = gpus(2, 2)
        assert chosen(cluster, ("auto",)) == cluster.devices("cuda")
        assert {d.kind for d in chosen(cluster, ("cpu",))} == {"cpu"}
        assert [str(d) for d in chosen(cluster, ("cuda:1",))] == ["0/cuda:1", "1/cuda:1"]
        with pytest.raises(
            ValueError, match=r"device='cuda:7' does not exist here; use cpu alone, cuda:0, cuda:1, or auto"
        ):
            chosen(cluster, ("cuda:7",))
        with pytest.raises(ValueError, match="device='cpu' stands beside GPUs"):
            chosen(cluster, ("cuda:0", "cpu"))


def test_in_one_process_what_waits_is_put_aside_where_memory_is_short() -> None:
    pair = ((llama(1.5, heads=12, kv_heads=2), work("a")), (llama(3, heads=16, kv_heads=2), work("b")))
    plan = make(pool(gpus(1, 1, 64), *pair, processes="one"), "shared")
    a, b = (p.memory[0, "cuda:0"] for p in plan.placements)
    assert (a.resting, b.resting) == (2 * 1.5e9, 2 * 3e9), "weights alone"
    # Two moments and masters, 12 bytes a parameter, are in the host's memory, and on the GPU in the policy's own update.
    assert [p.memory[0, "cpu"].resting for p in plan.placements] == [12 * 1.5e9, 12 * 3e9]
    assert b.learning > (12 + 4) * 3e9
    assert plan.load((0, "cuda:0")) < a.resting + b.resting + a.learning + b.learning
    assert all(p.work.offload and p.waiting > 0 for p in plan.placements)
    roomy = make(pool(gpus(1, 1, 141), *pair, processes="one"), "shared")
    assert not any(p.work.offload or p.waiting for p in roomy.placements)


def test_an_engine_takes_a_gpu_of_its_own_or_a_share_of_the_learners() -> None:
    cluster, model = gpus(1, 2), llama(1.5, heads=12, kv_heads=2)

    def planned(assignment: Any = None, **changes: Any) -> Placement:
        policy = model, work("a", vllm=Vllm(GIB, 0.25, **changes))
        return make(pool(cluster, policy), "colocated", assignment).placements[0]

    apart = planned({"a": {"learner": ["cuda:1"], "rollout": ["cuda:0"]}})
    assert [[str(d) for d in engine] for engine in apart.engines] == [["0/cuda:0"]]
    assert [str(d) for d in apart.learner.devices] == ["0/cuda:1"]
    assert apart.memory[0, "cuda:1"].resting == 14 * 1.5e9
    beside = planned()
    assert beside.engines == () and len(beside.learner.devices) == 2
    # Whole weights, a half of masters and moments, and vLLM's share of 80 GiB.
    assert beside.memory[0, "cuda:0"].resting == pytest.approx(2 * 1.5e9 + 12 * 1.5e9 / 2 + 20 * GIB, rel=1e-6)
    asleep = planned(sleeps=True)
    assert asleep.memory[0, "cuda:0"].resting == pytest.approx(2 * 1.5e9 + 12 * 1.5e9 / 2, rel=1e-6)
    assert asleep.memory[0, "cuda:0"].sampling == 20 * GIB
    assert asleep.memory[0, "cpu"].resting == 2 * 2 * 1.5e9, "each process has the engine's weights there"


def test_processes_have_a_shard_and_the_whole_model() -> None:
    full = llama(1)
    adapter = replace(full, adapter=True, trained=10_000_000)
    policies = (full, work("a", dtype="fp32", reference=True)), (adapter, work("b", dtype="fp32", reference=True))
    cluster = gpus(1, 4)
    plan = make(Pool(policies, cluster, cluster.devices(), "torchrun"), "shared")
    for gpu in (f"cuda:{i}" for i in range(4)):
        whole, other = (placement.memory[0, gpu].resting for placement in plan.placements)
        assert whole == 4e9 + (4e9 + 8e9 + 4e9) / 4  # in float32; shards of masters, of moments, and as it began
        assert other == 4e9 + (4e9 + 8e7 + 4e9) / 4
        assert plan.load((0, gpu)) > whole + other  # what waits stays
    assert [(p.learner.data_parallel, p.rollout.data_parallel) for p in plan.placements] == [(4, 4)] * 2
    assert plan.turns


def test_processes_on_cores_are_a_node_each() -> None:
    cluster = described({"nodes": 2, "cpus": 3, "memory": "8GiB"})
    small = work("a", dtype="fp32", generated=8, groups=2, batch=8, completion=32)
    plan = make(Pool(((llama(0.1), small),), cluster, cluster.devices(), "torchrun"), "shared")
    (placement,) = plan.placements
    assert (placement.learner.data_parallel, placement.rollout.data_parallel, placement.threads) == (2, 2, 3)
    assert [placement.memory[node, "cpu"].resting for node in (0, 1)] == [4e8 + 12e8 / 2] * 2


def test_in_one_process_policies_have_all_cores_in_turns() -> None:
    cluster = described({"cpus": 8, "memory": "64GiB"})
    policies = [(llama(0.1, heads=4, kv_heads=4, vocabulary=1000), work(name, completion=64)) for name in "ab"]
    for mode in ("shared", "dedicated", "colocated"):
        plan = make(pool(cluster, *policies, processes="one"), mode)
        assert plan.turns and [p.threads for p in plan.placements] == [8, 8]


def test_prompts_are_dealt_whole() -> None:
    """Two prompts keep two engines busy, however many completions they have."""
    rate, model = estimates.speed(gpus(1, 8), "cuda", "bf16"), llama(1.5)
    few = work("a", generated=32, groups=2)
    two, four = (estimates.rollout_seconds(model, few, rate, 1, engines) for engines in (2, 4))
    assert two == four < estimates.rollout_seconds(model, few, rate, 1, 1)


def test_processes_of_torchrun_are_counted() -> None:
    cluster = gpus(1, 4)
    policies = (llama(1), work("a")), (llama(1), work("b"))
    plan = make(Pool(policies, cluster, cluster.devices(), "torchrun"), "shared")
    resting = sum(p.memory[0, "cpu"].resting for p in plan.placements)
    assert plan.load((0, "cpu")) == resting + 4 * estimates.PROCESS_BYTES["cpu"]
    on_gpu = [p.memory[0, "cuda:0"] for p in plan.placements]
    expected = sum(m.resting for m in on_gpu) + max(m.transient for m in on_gpu) + estimates.PROCESS_BYTES["cuda"]
    assert plan.load((0, "cuda:0")) == expected


def test_one_process_has_one_device_for_each_policy() -> None:
    policies = [(llama(0.5, heads=8), work(name)) for name in "abc"]
    plan = make(pool(gpus(1, 2), *policies, processes="one"), "shared")
    assert [plan.device(name) for name in "abc"] == ["cuda:0", "cuda:1", "cuda:0"]
    assert all(len(p.devices) == 1 and not p.engine for p in plan.placements)
    plan = make(pool(gpus(1, 8), *policies, processes="one"), "dedicated")
    assert [plan.device(name) for name in "abc"] == ["cuda:0", "cuda:1", "cuda:2"]
    assert plan.turns
