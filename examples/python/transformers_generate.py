#!/usr/bin/env python3
"""A small language model generates with tessera's attention what it generates with the stock one.

Random weights, four layers with grouped heads, a padded batch of prompts, greedy decoding. On the GPU where there is one,
else in the emulator (with fewer tokens). Needs PyTorch and transformers.

Random weights make ties: where the tokens part, the model in fp32 says how far apart the two logits are, and how far the
stock model's own may be. A difference within that error decides nothing, and the sequence counts up to there. Exit
code 1 where the tokens part for another reason.

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
    are_same = True
    for row, (stock, ours) in enumerate(zip(made["sdpa"].tolist(), made["tessera"].tolist())):
        at = next((at for at, (one, other) in enumerate(zip(stock, ours)) if one != other), len(ours))
        print(" ".join(map(str, ours[:12])), f"... {at} of {len(ours)} tokens the same", end="")
        if at < len(ours):
            gap, error = tie(model, torch.cat((prompts[row], made["sdpa"][row, :at])), is_token[row], stock[at], ours[at])
            what = "then a tie: " if gap <= error else ""
            print(f", {what}logits {gap:.4f} apart, wrong by up to {error:.4f}", end="")
            are_same = are_same and gap <= error
        print()
    print(f"{made['sdpa'].numel()} tokens on {device}: {'the same' if are_same else 'NOT the same'}")
    return 0 if are_same else 1


def tie(model: LlamaForCausalLM, tokens: torch.Tensor, is_token: torch.Tensor, stock: int, ours: int) -> tuple[float, float]:
    """By how much fp32 prefers one of two tokens after these, and how wrong a difference of two logits of the stock model can be:
    twice its largest error in fp16."""
    mask = torch.cat((is_token, is_token.new_ones(len(tokens) - len(is_token))))
    positions = (mask.cumsum(0) - 1).clamp(min=0)
    of = {}
    for dtype in (torch.float16, torch.float32):
        model = model.to(dtype)
        model.set_attn_implementation("eager" if dtype is torch.float32 else "sdpa")
        with torch.no_grad():
            of[dtype] = model(tokens[None], attention_mask=mask[None], position_ids=positions[None]).logits[0, -1].float()
    model.to(torch.float16)
    exact = of[torch.float32]
    return abs(exact[stock] - exact[ours]).item(), 2 * (of[torch.float16] - exact).abs().max().item()


if __name__ == "__main__":
    sys.exit(main())
