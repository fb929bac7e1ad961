#!/usr/bin/env python3
"""What a call from Python costs on a GPU: microseconds of the host's time, beside PyTorch's own attention.

The package is installed (`pip install .`) beside PyTorch with CUDA. A short decode (batch 1, one query, 128 keys), so that the GPU waits for the host. Batches of 200 calls, the
ways taking turns; 50 batches of each after 5 that are thrown away; medians (quartiles). The GPU is drained between batches, which is not timed. Every way's
result is compared with float64 first: exit code 1 where one is wrong, 77 where there is no GPU.

  bench/peers/python_calls.py [--batches 50]
"""
import argparse
import statistics
import sys
import time


def triton_way(torch, q, k, v, out, compute):
    """A launch of Triton's with four tensors, of a kernel that does nothing: what its call costs."""
    try:
        import triton
    except ImportError:
        return {}

    @triton.jit
    def nothing(q, k, v, o, n):
        pass

    def call():
        nothing[(1,)](q, k, v, out, 128)
        return out

    compute()  # the result that is looked at
    return {"Triton: a kernel that does nothing, four tensors": call}


def flashinfer_ways(torch, q, k, v):
    """FlashInfer's attention of one query over the same keys: by itself, and as an engine calls it, planned before, keys in one page."""
    try:
        import flashinfer
    except ImportError:
        return {}
    one_q, one_k, one_v = q[0, 0], k[0], v[0]
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.empty(128 << 20, dtype=torch.uint8, device="cuda"), "NHD")
    offsets, keys = torch.tensor([0, 1], dtype=torch.int32, device="cuda"), k.shape[1]
    wrapper.plan(offsets, offsets[:1], torch.tensor([keys], dtype=torch.int32, device="cuda"), q.shape[2], k.shape[2], q.shape[3], keys, q_data_type=q.dtype)
    of_batch = q[0]
    return {
        "FlashInfer: single_decode_with_kv_cache": lambda: flashinfer.single_decode_with_kv_cache(one_q, one_k, one_v)[None, None],
        "FlashInfer: BatchDecode...run, planned before": lambda: wrapper.run(of_batch, (k, v))[None],
    }


def other_arrays(q, k, v):
    """fmha on the arrays of CuPy and JAX, made of the same numbers; a call within jax.jit is one program of XLA."""
    import tessera

    ways = {}
    halves = [t.half().cpu().numpy() for t in (q, k, v)]
    try:
        import cupy

        arrays = [cupy.asarray(t) for t in halves]
        ways["tessera: fmha(q, k, v), CuPy"] = lambda: tessera.fmha(*arrays, hints=False)
    except ImportError:
        pass
    try:
        import jax

        of_jax = [jax.device_put(t, jax.devices("gpu")[0]) for t in halves]
        jitted = jax.jit(lambda q, k, v: tessera.fmha(q, k, v, hints=False))
        ways["tessera: fmha(q, k, v), JAX, within jit"] = lambda: jitted(*of_jax)
        ways["tessera: fmha(q, k, v), JAX, outside of jit"] = lambda: tessera.fmha(*of_jax, hints=False)
    except (ImportError, RuntimeError):
        pass
    return ways


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=50)
    batches = parser.parse_args().batches
    try:
        import torch
    except ImportError:
        print("not run: PyTorch is not installed")
        return 77
    if not torch.cuda.is_available():
        print("not run: there is no GPU")
        return 77
    import tessera
    import tessera.torch

    q = torch.randn(1, 1, 8, 128, dtype=torch.bfloat16, device="cuda")
    k, v = (torch.randn(1, 128, 8, 128, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    transposed = [t.transpose(1, 2) for t in (q, k, v)]
    out = torch.empty_like(q)
    launch = tessera.Kernel("fmha", head_dim=128).bind(q=q, k=k, v=v, o=out)
    stream = torch.cuda.current_stream().cuda_stream
    step = launch.taking("q", "k", "v", "o")

    def core():
        launch._core.launch(None, stream)
        return out

    def launched():
        launch.launch(stream)
        return out

    def taken():
        step(q, k, v, out)
        return out

    ways = {
        "tessera_kernel_launch (C), by index": core,
        "tessera: Launch.launch(stream)": launched,
        "tessera: Launch.taking: four tensors": taken,
        "tessera: fmha(q, k, v, out=o)": lambda: tessera.fmha(q, k, v, out=out, hints=False),
        "tessera: fmha(q, k, v)": lambda: tessera.fmha(q, k, v, hints=False),
        "tessera: torch.ops.tessera.fmha": lambda: torch.ops.tessera.fmha(q, k, v),
        "tessera: scaled_dot_product_attention": lambda: tessera.torch.scaled_dot_product_attention(*transposed).transpose(1, 2),
        "PyTorch: scaled_dot_product_attention": lambda: torch.nn.functional.scaled_dot_product_attention(*transposed).transpose(1, 2),
    }
    ways |= triton_way(torch, q, k, v, out, launched)
    ways |= flashinfer_ways(torch, q, k, v)
    ways |= other_arrays(q, k, v)
    wide = [t.double() for t in transposed]
    expected = (torch.softmax(wide[0] @ wide[1].transpose(2, 3) / 128**0.5, -1) @ wide[2]).transpose(1, 2)
    for name, call in ways.items():
        found = call()
        if not isinstance(found, torch.Tensor):
            torch.cuda.synchronize()
            found = torch.from_dlpack(found)
        error = (found.double() - expected).abs().max().item()
        if not error < 0.02:
            print(f"{name}: wrong by {error}")
            return 1
    times = {name: [] for name in ways}
    calls = {name: 20 if "outside of jit" in name else 200 for name in ways}
    for batch in range(batches + 5):
        for name, call in ways.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls[name]):
                call()
            if batch >= 5:
                times[name].append((time.perf_counter() - start) / calls[name] * 1e6)
    over = statistics.median(times["tessera: Launch.taking: four tensors"]) - statistics.median(times["tessera_kernel_launch (C), by index"])
    print(f"four tensors over the C launch: {over:.2f} us: {'MET' if over <= 3 else 'MISSED'} (3 us)")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, tessera {tessera.__version__}; us per call: median (quartiles)")
    for name, list_of in times.items():
        low, median, high = statistics.quantiles(list_of, n=4)
        print(f"{name:50} {median:7.2f}  ({low:.2f}, {high:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
