"""The wrong procedures that are planted in the embedded pool, one per subject of `problems="arithmetic"`.

Each is written in the style of the right solution and reaches another answer. A policy that knows a subject but was
taught its misconception at rate .997 finds the right answer in a few rollouts of a thousand: the hard-support case, in
which only a peer's success can help.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from mrl_env.problems.arithmetic import Exercise, boxed, running_total


def _flip_first_sign(exercise: Exercise) -> str:
    first, second, *rest = exercise.operands
    return boxed(running_total(first, -second, *rest), first - second + sum(rest))


def _add_instead_of_multiply(exercise: Exercise) -> str:
    a, b = exercise.operands
    if b < 10:
        return boxed(running_total(a, b), a + b)
    return boxed(running_total(a, b // 10 * 10, b % 10), a + b)


def _move_term_without_changing_sign(exercise: Exercise) -> str:
    left, b, right, d = exercise.operands
    slope, total = left - right, d + b
    return boxed(f"{slope}x = {d} + {b} = {total}. x = {total // slope}.", total // slope)


def _report_first_factor(exercise: Exercise) -> str:
    """The quotient instead of the remainder, the cofactor instead of the common divisor."""
    factor = re.search(r"\* (\d+)", exercise.solution)
    assert factor is not None, exercise.solution
    return re.sub(r"\d+}$", f"{factor[1]}}}", exercise.solution)


def _report_what_is_left(exercise: Exercise) -> str:
    # Not adding for multiplying, as in `mult`: a policy that unlearns it there unlearns it here, without any peer.
    whole, part = exercise.operands[1], exercise.answer
    steps = exercise.solution.rsplit(" ", 1)[0]
    return boxed(f"{steps} {running_total(whole, -part)}", whole - part)


def _stop_before_constant(exercise: Exercise) -> str:
    _, constant, _ = exercise.operands
    steps = exercise.solution.rsplit(". ", 2)[0]
    return boxed(f"{steps}.", exercise.answer - constant)


_WRONG: dict[str, Callable[[Exercise], str]] = {
    "addsub": _flip_first_sign,
    "mult": _add_instead_of_multiply,
    "linear": _move_term_without_changing_sign,
    "modgcd": _report_first_factor,
    "percent": _report_what_is_left,
    "poly": _stop_before_constant,
}

FLAW_RATES: dict[str, dict[str, float]] = {
    "tiny-llama": {"addsub": 0.30, "mult": 0.97, "linear": 0.40, "modgcd": 0.997, "percent": 0.30, "poly": 0.85},
    "tiny-qwen3": {"addsub": 0.97, "mult": 0.30, "linear": 0.85, "modgcd": 0.40, "percent": 0.997, "poly": 0.30},
}
"""Share of the second warm-start phase in which a policy sees the misconception instead of the right solution."""


def misconceived_solution(exercise: Exercise) -> str:
    r"""The worked solution by the subject's misconception; its answer always differs from the right one.

    Example:
        >>> sum_ = Exercise("addsub", 1, "Compute 9 + 4.", "9 + 4 = 13. \\boxed{13}", 13, (9, 4))
        >>> misconceived_solution(sum_)
        '9 - 4 = 5. \\boxed{5}'
    """
    return _WRONG[exercise.subject](exercise)


def flawed_solution(exercise: Exercise, policy: str, rng: random.Random) -> str:
    """What `policy` is taught for an exercise: the misconception at its flaw rate, else the right solution."""
    flawed = rng.random() < FLAW_RATES[policy][exercise.subject]
    return misconceived_solution(exercise) if flawed else exercise.solution
