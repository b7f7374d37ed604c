"""Mutual RL as an environment: problems, several language-model agents, and the exchange between them.

Importing this package registers its environments with PettingZoo and Gymnasium, and imports neither torch nor
Transformers.
"""

from mrl_env.env import MutualEnv, SoloEnv
from mrl_env.exchange import (
    CHANNELS,
    DelayedExchange,
    Exchange,
    JsonlExchange,
    MemoryExchange,
    ReplayExchange,
    peer_experiences,
    visible,
)
from mrl_env.registration import make, register, registered, spec
from mrl_env.tokenization import Retokenizer, TextTokenizer
from mrl_env.types import Completion, Experience, Problem, ProblemSource, Trace, user_message

__all__ = [
    "CHANNELS",
    "Completion",
    "DelayedExchange",
    "Exchange",
    "Experience",
    "JsonlExchange",
    "MemoryExchange",
    "MutualEnv",
    "Problem",
    "ProblemSource",
    "ReplayExchange",
    "Retokenizer",
    "SoloEnv",
    "TextTokenizer",
    "Trace",
    "make",
    "peer_experiences",
    "register",
    "registered",
    "spec",
    "user_message",
    "visible",
]
