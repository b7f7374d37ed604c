"""Where problems come from: a name, a file, a hub dataset, or the user's own object."""

from mrl_env.problems import choice, gsm8k, reasoning_gym  # noqa: F401  (importing a domain registers its source)
from mrl_env.problems.arithmetic import Arithmetic
from mrl_env.problems.procedural import ProceduralMath
from mrl_env.problems.registry import load_problems, names, register

__all__ = ["Arithmetic", "ProceduralMath", "load_problems", "names", "register"]
