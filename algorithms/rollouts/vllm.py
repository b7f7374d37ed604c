"""Sampling by vLLM, from a copy of the policy's weights: in this process, or in a vLLM server.

Both draw each completion with its own seed, and end it where the model's own sampling would end it. Their log-probs are those
of the distribution that was drawn from: at the temperature, and renormalized over what top-k, top-p and min-p leave. vLLM gives
no entropies.

vLLM is optional, and imported only where an engine is made. Tested with vLLM 0.32.
"""

from __future__ import annotations

import http.client
import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from algorithms.config import PolicyConfig
from algorithms.errors import EngineError
from algorithms.rollouts.engine import Engine
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.rollouts.transformers import Rollout

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
"""vLLM's names."""

ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}
"""Settings of vLLM where the user's environment has none. On a CPU, keys and values get so many GiB."""

_REQUESTS = 256
"""Requests that a server gets at a time: as many as it works on at a time by default."""

_ALONE = 0.9
"""Share of its GPUs that an engine takes which has them for itself: vLLM's default."""

_LOG_TAIL = 4000
"""Characters of a server's log that an error message quotes."""


def make_engine(config: PolicyConfig, source: str, device: str) -> Engine | None:
    """The engine that samples for a policy; None if its own model does.

    Args:
        config: the policy's settings.
        source: the model's folder or hub id, without an adapter.
        device: where the policy's model is.

    Raises:
        ValueError: if vLLM is missing or cannot run the model, or there is no server.
    """
    if not config.use_vllm:
        return None
    if config.engine.server_base_url is not None:
        return ServerEngine(config, config.engine.server_base_url)
    require_vllm(f"use_vllm=True for {config.name}", "leave use_vllm out")
    if config.engine.mode == "server":
        return started_server(config, source, device)
    return ColocatedEngine(config, source, device, empty=True)


def require_vllm(what: str, otherwise: str) -> None:
    """Refuse to go on without vLLM.

    Raises:
        ValueError: naming what needs it and the remedies.
    """
    if importlib.util.find_spec("vllm") is None:
        raise ValueError(f"{what} needs vLLM; install it as docs/scale.md says, or {otherwise}")


def cpu_cache_bytes() -> int:
    """Bytes of keys and values that an engine on a CPU keeps.

    Raises:
        ValueError: if VLLM_CPU_KVCACHE_SPACE is not a number.
    """
    name = "VLLM_CPU_KVCACHE_SPACE"
    value = os.environ.get(name, ENVIRONMENT[name])
    if not value.isdecimal():
        raise ValueError(f"{name}={value!r} in the environment is no size; give whole GiB, such as {name}=4")
    return int(value) << 30


def engine_arguments(config: PolicyConfig, source: str, device: str, *, empty: bool) -> dict[str, Any]:
    """Arguments of vLLM's engine, of which those of its command line are the same with hyphens.

    Args:
        config: the policy's settings.
        source: the model's folder or hub id.
        device: where it is to run.
        empty: whether it starts without the model's weights, since it will be given them.
    """
    settings = config.engine
    arguments: dict[str, Any] = {
        "model": source,
        # Prompts and completions are token ids, and the policy says which of them end a completion.
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "dtype": DTYPES[config.dtype],
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "seed": 0,
    }
    if settings.max_model_length is not None:
        arguments["max_model_len"] = settings.max_model_length
    if config.trust_remote_code:
        arguments["trust_remote_code"] = True
    if empty:
        arguments["load_format"] = "dummy"
    if device == "cpu":
        arguments["enforce_eager"] = True  # compiling takes minutes there
    if device == "cpu" and empty:
        # There vLLM computes with a packed copy of the head, which it does not renew where the head is tied to the embeddings.
        arguments["hf_overrides"] = {"tie_word_embeddings": False}
    return arguments


def sampling_arguments(config: SamplingConfig, seed: int, eos_token_ids: Collection[int]) -> dict[str, Any]:
    """Arguments of vLLM's `SamplingParams`.

    Args:
        config: how to draw.
        seed: 64 bits; vLLM's have 63.
        eos_token_ids: tokens that end a completion, instead of those that vLLM finds in the model's files.
    """
    return {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": config.top_k,
        "min_p": config.min_p,
        "seed": seed >> 1,
        "max_tokens": config.max_completion_length,
        "stop_token_ids": sorted(eos_token_ids),
        "ignore_eos": True,
        "logprobs": 0,  # of the drawn token, and of no other
        "detokenize": False,
    }


def rollout(
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    eos_token_ids: Collection[int],
    ends_answer: Callable[[list[int]], bool] | None,
) -> Rollout:
    """A completion as the model's own sampling would have ended it: behind the first token that ends it.

    vLLM does not ask `ends_answer`, and goes on behind a finished answer; what it draws there is cut off.
    """
    for length, token_id in enumerate(token_ids, start=1):
        if token_id in eos_token_ids:
            return Rollout(list(token_ids[:length]), list(logprobs[:length]), finish_reason="stop")
        if ends_answer is not None and ends_answer(list(token_ids[:length])):
            return Rollout(list(token_ids[:length]), list(logprobs[:length]), finish_reason="boxed")
    return Rollout(list(token_ids), list(logprobs), finish_reason="length")


class ColocatedEngine:
    """vLLM in this process, so that weights are handed over in memory, and the same seeds give the same completions.

    Args:
        config: the policy's settings.
        source: the model's folder or hub id, without an adapter.
        device: where the policy's model is; the engine shares it.
        empty: whether it starts without the model's weights, since it will be given them.
        alone: whether it has its devices for itself.
        tensor_parallel: GPUs that the weights are split over.

    Raises:
        ValueError: if vLLM cannot run the model, or not on this device.
    """

    answers_all = False

    def __init__(
        self,
        config: PolicyConfig,
        source: str,
        device: str,
        *,
        empty: bool = False,
        alone: bool = False,
        tensor_parallel: int = 1,
    ) -> None:
        if device not in ("cpu", "cuda", "cuda:0"):
            raise ValueError(
                f"vllm_mode='colocate' puts the engine on the first GPU, but {config.name} is on {device}; set vllm_mode "
                "server, or let CUDA_VISIBLE_DEVICES name that GPU alone"
            )
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        self._vllm = importlib.import_module("vllm")
        self.max_length = config.engine.max_model_length
        self._sleeps = config.engine.enable_sleep_mode and device != "cpu" and not alone
        self._asleep = False
        with _undisturbed(), _explained(config):
            arguments = engine_arguments(config, source, device, empty=empty)
            if alone:
                arguments["gpu_memory_utilization"] = _ALONE
            if tensor_parallel > 1:
                arguments |= {"tensor_parallel_size": tensor_parallel, "distributed_executor_backend": "mp"}
            self._llm = self._vllm.LLM(**arguments, enable_sleep_mode=self._sleeps)
            _try_out(self)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generations: int,
        config: SamplingConfig,
        seeds: Sequence[int],
        eos_token_ids: Collection[int],
        ends_answer: Callable[[list[int]], bool] | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Rollout]]:
        """Sample completions; see `Engine.generate`.

        Each completion is a request of its own, since a seed belongs to a request; prefix caching computes their common prompt
        once. vLLM plans its batches itself, and progress comes at the end.

        Raises:
            EngineError: if vLLM gave a completion up.
        """
        requests = [
            self._vllm.TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts for _ in range(generations)
        ]
        params = [self._vllm.SamplingParams(**sampling_arguments(config, seed, eos_token_ids)) for seed in seeds]
        self._wake()
        # Neither keys and values of old weights, nor a result that depends on what was asked before.
        self._llm.reset_prefix_cache()
        answers = [answer.outputs[0] for answer in self._llm.generate(requests, params, use_tqdm=False)]
        self._rest()
        rollouts = []
        for answer in answers:
            _check_finished(answer.finish_reason)
            logprobs = [float(place[t].logprob) for place, t in zip(answer.logprobs, answer.token_ids, strict=True)]
            rollouts.append(rollout(answer.token_ids, logprobs, eos_token_ids, ends_answer))
        if progress is not None:
            progress(len(rollouts))
        return [rollouts[p * generations : (p + 1) * generations] for p in range(len(prompts))]

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take new weights; see `Engine.load_weights`."""
        self._wake()
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights.items())})

    def _wake(self) -> None:
        if self._sleeps and self._asleep:
            self._llm.wake_up()
        self._asleep = False

    def _rest(self) -> None:
        self._asleep = self._sleeps
        if self._sleeps:
            self._llm.sleep(level=1)


class ServerEngine:
    """A vLLM server, which is spoken to over HTTP. Weights go through a folder that both see.

    vLLM's own transfers of weights to a server (NCCL, CUDA IPC) need GPUs on both sides; its reloading from a folder works on
    every device. The server needs `VLLM_SERVER_DEV_MODE=1`, `--enable-scale-out` and
    `--logprobs-mode processed_logprobs`. In which order requests
    arrive decides how they are batched, so that the same seeds may give other completions in another run.

    Args:
        config: the policy's settings.
        base_url: the server's address.
        process: the server, if it was started here: it is ended with this engine.
        log: the file of its output.

    Raises:
        ValueError: if there is no server, or one that takes no weights.
    """

    def __init__(
        self,
        config: PolicyConfig,
        base_url: str,
        process: subprocess.Popen[bytes] | None = None,
        log: Path | None = None,
    ) -> None:
        self._url = base_url.rstrip("/")
        self.answers_all = process is None
        self.max_length = config.engine.max_model_length
        self._timeout = config.engine.server_timeout
        self._process, self._log = process, log
        if process is not None:
            weakref.finalize(self, _end, process)
        parent = config.engine.server_weights_dir
        if parent is not None and not Path(parent).is_dir():
            raise ValueError(f"vllm_server_weights_dir={parent!r} is no folder; make it, where run and servers see it")
        self._folder = tempfile.TemporaryDirectory(prefix="mutual-rl-weights-", dir=parent)
        self._wait()
        if process is not None:
            try:
                _try_out(self)
            except EngineError as error:
                raise self._failed(f"fails ({error})") from error
        if "/collective_rpc" not in (self._ask("/openapi.json") or {}).get("paths", {}):
            raise ValueError(
                f"vllm_server_base_url={base_url!r} is a server that takes no weights; start it with VLLM_SERVER_DEV_MODE=1 in "
                "its environment"
            )

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generations: int,
        config: SamplingConfig,
        seeds: Sequence[int],
        eos_token_ids: Collection[int],
        ends_answer: Callable[[list[int]], bool] | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Rollout]]:
        """Sample completions; see `Engine.generate`.

        Raises:
            EngineError: if the server failed, or gave a completion up.
        """

        def complete(row: int) -> Rollout:
            answer = self._ask(
                "/inference/v1/generate",
                {
                    "token_ids": list(prompts[row // generations]),
                    "sampling_params": sampling_arguments(config, seeds[row], eos_token_ids),
                },
            )["choices"][0]
            _check_finished(answer["finish_reason"])
            logprobs = [place["logprob"] for place in answer["logprobs"]["content"]]
            return rollout(answer["token_ids"], logprobs, eos_token_ids, ends_answer)

        self._ask("/reset_prefix_cache", {})  # what it holds was computed with old weights
        rollouts = []
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for completed in pool.map(complete, range(len(seeds))):
                rollouts.append(completed)
                if progress is not None:
                    progress(1)
        return [rollouts[p * generations : (p + 1) * generations] for p in range(len(prompts))]

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take new weights; see `Engine.load_weights`.

        Raises:
            EngineError: if the server failed.
        """
        path = Path(self._folder.name) / "model.safetensors"
        # A file has no weight twice: a tied head is a copy of the embeddings.
        places = Counter(weight.data_ptr() for weight in weights.values())
        apart = {n: w.clone() if places[w.data_ptr()] > 1 else w for n, w in weights.items()}
        save_file({n: w.contiguous() for n, w in apart.items()}, path, metadata={"format": "pt"})
        # A server that began without weights reads no files until it is told to.
        overrides = {"load_config": {"load_format": "safetensors"}}
        self._ask("/collective_rpc", {"method": "update_config", "kwargs": {"overrides": overrides}})
        self._ask("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": self._folder.name}})

    def _wait(self) -> None:
        """Until the server is ready.

        Raises:
            ValueError: if it never is.
        """
        until, said = time.monotonic() + self._timeout, ""
        while time.monotonic() < until and (self._process is None or self._process.poll() is None):
            try:
                self._ask("/health")
            except EngineError as error:
                said = str(error)
                time.sleep(0.5)
            else:
                return
        if self._process is None:
            raise ValueError(
                f"vllm_server_base_url={self._url!r} is not ready within vllm_server_timeout={self._timeout} s ({said}); check "
                "the address, and that the server runs"
            )
        ended = self._process.poll() is not None
        raise self._failed("stopped" if ended else f"was not ready within vllm_server_timeout={self._timeout} s")

    def _failed(self, how: str) -> ValueError:
        """End the server; the error that says how it failed."""
        assert self._process is not None
        _end(self._process)
        log = "" if self._log is None else self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
        return ValueError(
            f"the vLLM server {how}; vLLM may not run this model here: leave use_vllm out for it. The end of "
            f"{self._log}:\n{log}"
        )

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """GET, or POST if there is a body; the answer's JSON, None without.

        Raises:
            EngineError: if the server does not answer, or with an error.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")[:_LOG_TAIL]
            raise EngineError(f"the vLLM server at {self._url}{path} answers {error.code}: {detail}") from error
        except (OSError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
            raise EngineError(f"the vLLM server at {self._url} does not answer: {error}") from error
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise EngineError(f"{self._url}{path} answers something that is no JSON; is it a vLLM server?") from error


def started_server(config: PolicyConfig, source: str, device: str) -> ServerEngine:
    """A vLLM server in a process of its own, on the policy's device, that ends with the engine or this process.

    Raises:
        ValueError: if it does not start.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**ENVIRONMENT, **os.environ, "VLLM_SERVER_DEV_MODE": "1"}
    if device.startswith("cuda:"):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        number = int(device.removeprefix("cuda:"))
        environment["CUDA_VISIBLE_DEVICES"] = str(number) if not visible else visible.split(",")[number]
    arguments = {**engine_arguments(config, source, device, empty=True), "host": "127.0.0.1", "port": port}
    arguments["enable_scale_out"] = True  # prompts and completions as token ids
    # Not `vllm serve`, which looks for a distribution named vllm: that for CPUs is vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    for name, value in arguments.items():
        flag = f"--{name.replace('_', '-')}"
        command += [flag] if value is True else [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    descriptor, log = tempfile.mkstemp(prefix="mutual-rl-vllm-", suffix=".log")
    with open(descriptor, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    return ServerEngine(config, f"http://127.0.0.1:{port}", process, Path(log))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server, with a few seconds to end its own processes."""
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _try_out(engine: Engine) -> None:
    """Let an engine draw a token: some models only fail when they compute."""
    engine.generate([[0]], 1, SamplingConfig(max_completion_length=1), [0], ())


def _check_finished(reason: str | None) -> None:
    if reason not in ("stop", "length"):
        raise EngineError(f"vLLM gave a completion up: finish_reason={reason!r}")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put back what vLLM changes in this process as it starts: PyTorch's threads and random state."""
    set_num_threads = torch.set_num_threads
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(threads)


@contextmanager
def _explained(config: PolicyConfig) -> Iterator[None]:
    """Turn the errors of vLLM's start into one that names the field, the value and the remedy."""
    try:
        yield
    except (AssertionError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"use_vllm=True, but vLLM cannot run {config.model_name_or_path!r} of {config.name} here; leave use_vllm out for "
            f"it, or see vllm_max_model_length, vllm_gpu_memory_utilization and the plan if memory is short. vLLM said: {error}"
        ) from error
