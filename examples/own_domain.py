"""Problems of one's own, and an environment id for them: bills to add up, judged by the built-in `math` verifier.

python -m algorithms.sgt --problems own_domain:Bills      # by the class's dotted path
python own_domain.py                                      # by the id that is registered below

The embedded policy_1 cannot add yet, so its first steps may earn nothing, which is said in a warning.
"""

import sys
from dataclasses import dataclass

import mrl_env
from mrl_env import Problem, user_message
from mrl_env.seeding import derive_rng


@dataclass
class Bills:
    split: str  # "train" or "test"
    seed: int

    def __len__(self):
        return 500

    def __getitem__(self, index):
        rng = derive_rng(self.seed, "bills", self.split, index)  # the same index gives the same bill
        others = [rng.randint(1, 30) for _ in range(rng.choice((1, 2)))]
        first = 2 * rng.randint(1, 15) + (self.split == "test")  # even or odd: the splits share no question
        question = f"Compute {first} + {' + '.join(map(str, others))}."
        about = {"subject": f"{1 + len(others)} prices"}  # results are shown by subject
        return Problem(f"bill-{self.split}-{index}", user_message(question), str(first + sum(others)), metadata=about)


mrl_env.problems.register("bills", Bills)
mrl_env.register("bills-mutual-v0", kwargs={"problems": "bills"})

if __name__ == "__main__":
    from algorithms.cli import main

    main("sgt", ["--env", "bills-mutual-v0", *sys.argv[1:]])
