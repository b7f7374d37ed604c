"""Policies that say odd things: tiny models that always draw one token, and what that token is."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

KINDS = ("only the end of sequence", "only one token", "invalid UTF-8", "100 kB without an end")

_END, _LONG = "</s>", "a" * 12_500
"""Eight of the long token are 100 kB."""


def make(kind: str, folder: Path) -> None:
    """Write a model and its tokenizer.

    Args:
        kind: one of `KINDS`.
        folder: where to.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate([*alphabet, _LONG])}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=_END)
    # In the byte-level alphabet a byte that is no printable character, such as 0xFF, has a character of its own.
    said = {"only one token": "a", "invalid UTF-8": "ÿ", KINDS[0]: _END, KINDS[3]: _LONG}[kind]
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            max_position_embeddings=4096,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )
    with torch.no_grad():
        # Every token has the same embedding and the layer adds nothing, so the last hidden state is the same everywhere.
        model.model.embed_tokens.weight.fill_(1.0)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.lm_head.weight.zero_()
        model.lm_head.weight[tokenizer.convert_tokens_to_ids(said)] = 10.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
