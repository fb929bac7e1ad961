#!/usr/bin/env python3
"""A small language model generates with tessera's attention what it generates with the stock one.

Random weights, four layers with grouped heads, a padded batch of prompts, greedy decoding. On the GPU where there is one,
else in the emulator (with fewer tokens). Needs PyTorch and transformers; exit code 1 where a token differs.

  python3 examples/python/transformers_generate.py [--tokens 64]
"""

import argparse
import sys

import tessera.transformers
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main() -> int:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=64 if on_gpu else 4)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tessera.transformers.register()
    torch.manual_seed(arguments.seed)
    device = "cuda" if on_gpu else "cpu"
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=64,
        initializer_range=0.08,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).to(device, torch.float16).eval()
    prompts = torch.randint(2, 512, (3, 37), device=device)
    is_token = torch.ones_like(prompts)
    is_token[1, :20] = 0  # the second prompt is shorter: padded on the left
    prompts[1, :20] = 0
    made = {}
    for implementation in ("sdpa", "tessera"):
        model.set_attn_implementation(implementation)
        made[implementation] = model.generate(
            prompts, attention_mask=is_token, max_new_tokens=arguments.tokens, do_sample=False
        )[:, prompts.shape[1] :]
    same = bool((made["sdpa"] == made["tessera"]).all())
    for stock, ours in zip(made["sdpa"].tolist(), made["tessera"].tolist()):
        print(("same  " if stock == ours else "DIFFERENT  "), " ".join(map(str, ours[:16])), "...")
    print(f"{made['sdpa'].numel()} tokens on {device}: {'all the same' if same else 'not the same'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
