"""Attention from Python: NumPy arrays in the emulator, or PyTorch's tensors on a GPU, beside float64.

    python attention.py          # the emulator: no GPU, no PyTorch
    python attention.py gpu      # PyTorch, on its current device and stream
"""

import sys

import numpy
import tessera


def expected(q, k, v):
    scores = numpy.einsum("bqhd,bkhd->bhqk", q, k) / numpy.sqrt(q.shape[-1])
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return numpy.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)


def main() -> int:
    random = numpy.random.default_rng()
    q, k, v = (random.standard_normal((1, seqlen, 4, 64)).astype(numpy.float16) for seqlen in (30, 100, 100))
    if sys.argv[1:] == ["gpu"]:
        import torch

        o = tessera.fmha(*(torch.from_numpy(tensor).cuda() for tensor in (q, k, v))).cpu().numpy()
    else:
        o = tessera.fmha(q, k, v, device=tessera.Emulator(detects_races=True))
    error = numpy.abs(o - expected(*(tensor.astype(numpy.float64) for tensor in (q, k, v)))).max()
    print(f"o {o.shape}, at most {error:.1e} from float64")
    return 0 if error < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
