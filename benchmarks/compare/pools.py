"""Pools: several models to begin with, by one word on the command line; they are known by their contents, not their paths."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from algorithms.policy import model_folders
from algorithms.pools import EMBEDDED, embedded_path
from mrl_env.problems import names
from mrl_env.problems.files import is_problem_file

SMALL = ("SmolLM2-135M-Instruct", "gemma-3-270m")
"""The real models of the pool `small`, as the names of GGUF files in the folder `MRL_MODELS` begin."""


@dataclass(frozen=True)
class Pool:
    """A warm start.

    Attributes:
        name: in folders, tables and figures.
        models: one per policy, as `model_name_or_path` takes them.
    """

    name: str
    models: tuple[str, ...]


def find_pool(spec: str) -> Pool:
    """The pool that a word stands for.

    Args:
        spec: `tiny` (the embedded one); `small` (two real models in the folder `MRL_MODELS`); a folder with one model folder
            per policy, as `python -m algorithms.pools.build` writes it; or models, separated by commas. `name=` before it
            gives it another name than the folder's. Environment variables (`$WARM/seed1`) are expanded.

    Raises:
        ValueError: if there is no such folder or model, or fewer than two models.
    """
    name, _, value = spec.rpartition("=")
    expanded = os.path.expandvars(value)
    if "$" in expanded:
        raise ValueError(f"pool={spec!r} names an environment variable that is not set; set it, or give a path")
    if value == "tiny":
        return Pool(name or "tiny", tuple(EMBEDDED))
    if value == "small":
        return Pool(name or "small", _small())
    if not expanded or "/" in name:
        raise ValueError(f"pool={spec!r} has no models, or a name with '/'; write NAME=MODEL,MODEL or NAME=FOLDER")
    if "," in expanded:
        models = tuple(model.strip() for model in expanded.split(","))
        for model in models:
            if not model or (embedded_path(model) is None and not Path(model).exists()):
                raise ValueError(f"pool={spec!r} names {model!r}, which is neither embedded nor a folder or file")
        if len(models) < 2:
            raise ValueError(f"pool={spec!r} has one model; give at least two")
        return Pool(name or "+".join(Path(model).name for model in models), models)
    models = tuple(model_folders(Path(expanded))) if Path(expanded).is_dir() else ()
    if len(models) < 2:
        raise ValueError(
            f"pool={spec!r} is no folder with at least two model folders; give 'tiny', 'small', such a folder, or models "
            "separated by commas"
        )
    return Pool(name or Path(expanded).resolve().name, models)


def find_pools(specs: Sequence[str]) -> list[Pool]:
    """All pools.

    Raises:
        ValueError: as `find_pool` does, or if two have the same name.
    """
    pools = [find_pool(spec) for spec in specs]
    names = [pool.name for pool in pools]
    if len(set(names)) != len(names):
        raise ValueError(f"pool={list(specs)!r} has two pools of one name; tell them apart by name=PATH")
    return pools


@cache
def content_hash(model: str) -> str:
    """SHA-256 of a model: of its file, or of the names and contents of its folder's files; of its name if it is neither."""
    path = embedded_path(model) or Path(model)
    if path.is_dir():
        parts = [f"{file.name} {_file_hash(file)}" for file in sorted(path.iterdir()) if file.is_file()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return _file_hash(path) if path.is_file() else hashlib.sha256(model.encode()).hexdigest()


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def settings_hash(settings: Mapping[str, Any], *others: Any) -> str:
    """Ten hexadecimal digits for settings, models and files known by their contents, and for whatever else is given.

    Args:
        settings: keys of `TrainingConfig`, plain values.
        others: JSON values.
    """
    known = dict(settings)
    for key, value in settings.items():
        if key == "model_name_or_path":
            known[key] = [content_hash(model) for model in value]
        elif key == "chat_template":
            known[key] = [content_hash(name) if name and Path(name).is_file() else name for name in value]
        elif key in ("problems", "eval_problems") and isinstance(value, str):
            known[key] = _known_problems(value)
        elif key == "exchange_replay" and value is not None:
            known[key] = _file_or_name(str(value))
    return hashlib.sha256(json.dumps([known, *others], sort_keys=True).encode()).hexdigest()[:10]


def _known_problems(spec: str) -> str:
    """Problems with a file's content in place of its path, as `mrl_env.problems.load_problems` would read it.

    Example:
        >>> _known_problems("math"), _known_problems("choice:hub:owner/name")
        ('math', 'choice:hub:owner/name')
    """
    domain, colon, data = spec.partition(":")
    if colon and domain in names():
        return f"{domain}:{_file_or_name(data)}" if Path(data).expanduser().is_file() else spec
    return _file_or_name(spec) if is_problem_file(spec) else spec


def _file_or_name(path: str) -> str:
    """SHA-256 of a file's content, or of what is no file."""
    file = Path(path).expanduser()
    return _file_hash(file) if file.is_file() else hashlib.sha256(path.encode()).hexdigest()


def short_name(model: str) -> str:
    """A model's name without the machine's folders: of a path its last two parts."""
    return model if embedded_path(model) else "/".join(Path(model).parts[-2:])


def _small() -> tuple[str, ...]:
    folder = Path(os.environ.get("MRL_MODELS", ""))
    found = [sorted(folder.glob(f"{name}*.gguf")) for name in SMALL] if os.environ.get("MRL_MODELS") else [[]]
    if not all(found):
        raise ValueError(
            f"pool='small' needs the GGUF files of {' and '.join(SMALL)} in the folder that the environment variable "
            "MRL_MODELS names"
        )
    return tuple(str(paths[0]) for paths in found)
