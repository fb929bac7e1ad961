"""Attention in PyTorch in ten lines: on the GPU, or with CPU tensors in the emulator."""

import tessera
import torch

device, where = ("cuda", None) if torch.cuda.is_available() else ("cpu", "emulator")
q, k, v = (torch.randn(1, 100, heads, 64, device=device).half() for heads in (8, 2, 2))
o = tessera.fmha(q, k, v, causal=True, device=where)
q, k, v = (t.float().transpose(1, 2).repeat_interleave(8 // t.shape[2], 1) for t in (q, k, v))
stock = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
print(tuple(o.shape), "at most", (o.float() - stock).abs().max().item(), "from PyTorch's")
