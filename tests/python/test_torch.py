"""PyTorch: CPU tensors in the emulator; on a GPU where there is one. Skipped where PyTorch is not installed."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def inputs(device="cpu", batch=2, seqlen_q=40, seqlen_k=50, heads=4, heads_kv=2, dtype=torch.bfloat16):
    """q as a transposed view, as models have it."""
    seed = torch.seed()
    print("seed", seed)
    q = torch.randn(batch, heads, seqlen_q, 64, dtype=dtype, device=device).transpose(1, 2)
    k, v = (torch.randn(batch, seqlen_k, heads_kv, 64, dtype=dtype, device=device) for _ in range(2))
    return q, k, v


def expected(q, k, v, causal):
    q, k, v = (t.double().transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    rows, keys = torch.arange(q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device)[None]
    if causal:
        scores = scores.masked_fill(keys > rows + k.shape[2] - q.shape[2], float("-inf"))
    return (torch.softmax(scores, -1) @ v).transpose(1, 2), torch.logsumexp(scores, -1)


def worst(found, reference):
    error = (found.double() - reference).abs().max().item()
    return error if error == error else float("inf")


def test_functions_take_tensors():
    q, k, v = inputs()
    o, lse = tessera.fmha(q, k, v, causal=True, return_lse=True, device="emulator")
    reference, reference_lse = expected(q, k, v, True)
    assert (o.dtype, o.shape) == (torch.bfloat16, q.shape)
    assert worst(o, reference) < 0.02 and worst(lse, reference_lse) < 1e-3
    out = torch.zeros(2, 80, 4, 64, dtype=torch.bfloat16)[:, ::2]
    assert tessera.fmha(q, k, v, causal=True, out=out, device="emulator") is out
    assert bool((out == o).all())


def test_operators_have_shapes_and_results():
    tt.emulate_on_cpu()
    q, k, v = inputs()
    o, lse = torch.ops.tessera.fmha_lse(q, k, v, True)
    assert worst(o, expected(q, k, v, True)[0]) < 0.02
    with torch.inference_mode():  # PyTorch 1.13 has no Meta tensors elsewhere
        on_meta = torch.ops.tessera.fmha_lse(*(torch.empty_like(t, device="meta") for t in (q, k, v)), True)
    assert [(t.shape, t.dtype) for t in on_meta] == [(o.shape, o.dtype), (lse.shape, lse.dtype)]
    a, b = torch.randn(16, 64, dtype=torch.float16), torch.randn(24, 64, dtype=torch.float16)
    d = torch.ops.tessera.gemm(a, b, None, "relu")
    assert worst(d, (a.double() @ b.double().T).clamp(min=0)) < 0.02
    with torch.inference_mode():
        meta = torch.ops.tessera.gemm(*(torch.empty_like(t, device="meta") for t in (a, b)), None, "relu")
    assert (meta.shape, meta.dtype) == (d.shape, d.dtype)


def test_scaled_dot_product_attention_takes_what_it_can(monkeypatch):
    tt.emulate_on_cpu()
    left_to_pytorch = []
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *a, **b: left_to_pytorch.append(b), raising=False
    )
    q, k, v = (t.transpose(1, 2) for t in inputs(seqlen_k=40))
    y = tt.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert worst(y.transpose(1, 2), expected(*(t.transpose(1, 2) for t in (q, k, v)), True)[0]) < 0.02
    assert left_to_pytorch == []
    mask = torch.ones(40, 40, dtype=torch.bool)
    for call in (
        lambda: tt.scaled_dot_product_attention(q, k, v, is_causal=True),  # heads differ
        lambda: tt.scaled_dot_product_attention(q, q, q, attn_mask=mask),
        lambda: tt.scaled_dot_product_attention(q, q, q, dropout_p=0.5),
        lambda: tt.scaled_dot_product_attention(q[:, :, :8], q, q, is_causal=True),  # another diagonal
        lambda: tt.scaled_dot_product_attention(q.float(), q.float(), q.float()),
        lambda: tt.scaled_dot_product_attention(q.clone().requires_grad_(), q, q),
        lambda: tt.scaled_dot_product_attention(q[..., :40], q[..., :40], q[..., :40]),  # no kernel for 40
        lambda: tt.scaled_dot_product_attention(q[..., 1:33], q[..., 1:33], q[..., 1:33]),  # misaligned
    ):
        before = len(left_to_pytorch)
        assert call() is None and len(left_to_pytorch) == before + 1


def test_caches_are_marked_as_written(monkeypatch):
    """A step of decoding, whole and within a compiled graph: k and v to their slots, then attention over the pages."""
    tt.emulate_on_cpu()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def step(q, k, v, k_cache, v_cache, slots, block_table, seqused_k):
        torch.ops.tessera.append_kv(k, v, k_cache, v_cache, slots)
        return torch.ops.tessera.fmha_paged(q, k_cache, v_cache, block_table, seqused_k) * 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    print("seed", torch.seed())
    for run in (step, compiled, compiled):
        caches = [torch.randn(6, 16, 2, 64, device=device).half() for _ in range(2)]
        before = [cache.clone() for cache in caches]
        q = torch.randn(2, 1, 4, 64, device=device).half()
        k, v = (torch.randn(2, 2, 64, device=device).half() for _ in range(2))
        block_table = torch.tensor([[4, 1], [0, 3]], dtype=torch.int32, device=device)
        seqused_k = torch.tensor([20, 7], dtype=torch.int32, device=device)
        slots = torch.tensor([1 * 16 + 3, 0 * 16 + 6], dtype=torch.int32, device=device)  # the last key of each
        o = run(q, k, v, *caches, slots, block_table, seqused_k)
        for cache, old, new in zip(caches, before, (k, v)):
            old.view(96, 2, 64)[slots.long()] = new
            assert torch.equal(cache, old)
        for at, (pages, length) in enumerate((((4, 1), 20), ((0, 3), 7))):
            keys, values = (cache[list(pages)].reshape(1, 32, 2, 64)[:, :length] for cache in caches)
            assert worst(o[at : at + 1], expected(q[at : at + 1], keys, values, True)[0]) < 0.01


def test_an_output_that_is_given_and_empty_tensors():
    tt.emulate_on_cpu()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = inputs(device)
    out = torch.full(q.shape, float("nan"), dtype=q.dtype, device=device)
    torch.compile(lambda *t: torch.ops.tessera.fmha_out(*t, True), fullgraph=True, backend="aot_eager")(q, k, v, out)
    assert worst(out, expected(q, k, v, True)[0]) < 0.02
    for batch, seqlen_q, seqlen_k in ((0, 40, 50), (2, 0, 50), (2, 40, 0)):
        q, k, v = inputs(device, batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k)
        o = torch.ops.tessera.fmha(q, k, v)
        assert o.shape == (batch, seqlen_q, 4, 64) and (o == 0).all()
    a, b = torch.empty(0, 64, dtype=torch.float16, device=device), torch.ones(48, 64, dtype=torch.float16, device=device)
    assert torch.ops.tessera.gemm(a, b).shape == (0, 48)


def test_under_autocast_types_are_not_changed_silently():
    q, k, v = inputs(dtype=torch.float32)
    tt.emulate_on_cpu()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(tessera.UnsupportedError, match="fmha has no kernel for dtype f32"):
            torch.ops.tessera.fmha(q, k, v)
        o = tt.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), enable_gqa=True)
        assert o.shape == (2, 4, 40, 64) and torch.isfinite(o.float()).all()


@on_gpu
def test_on_a_gpu_on_any_stream_and_in_a_graph():
    q, k, v = inputs("cuda", seqlen_q=500, seqlen_k=777)
    reference = expected(q, k, v, True)[0]
    assert worst(tessera.fmha(q, k, v, causal=True), reference) < 0.02
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        o = tessera.fmha(q, k, v, causal=True)
    stream.synchronize()
    assert worst(o, reference) < 0.02
    kernel = tessera.Kernel("fmha", head_dim=64, mask="causal")
    launch = kernel.bind(q=q, k=k, v=v)
    kernel.prepare()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch.launch()
    q.copy_(torch.randn_like(q))
    launch.outputs["o"].fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert worst(launch.outputs["o"], expected(q, k, v, True)[0]) < 0.02


@on_gpu
def test_on_a_gpu_decode_and_pytorchs_attention():
    q, k, v = inputs("cuda", batch=3, seqlen_q=1, seqlen_k=5000)
    assert worst(tessera.fmha(q, k, v), expected(q, k, v, False)[0]) < 0.02
    q, k, v = (t.transpose(1, 2) for t in inputs("cuda", seqlen_q=300, seqlen_k=300))
    mine = tt.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert worst(mine.transpose(1, 2), expected(*(t.transpose(1, 2) for t in (q, k, v)), True)[0]) < 0.02
    compiled = torch.compile(lambda *t: torch.ops.tessera.fmha(*t) + 1, fullgraph=True)
    q, k, v = inputs("cuda")
    assert worst(compiled(q, k, v), expected(q, k, v, False)[0] + 1) < 0.03


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs")
def test_tensors_of_several_gpus():
    """The GPU of the tensors counts, whichever is current; shapes that are remembered are so for each."""
    step = None
    for _ in range(3):
        for ordinal in (1, 0):
            q, k, v = inputs(f"cuda:{ordinal}")
            o = tessera.fmha(q, k, v, causal=True)
            assert o.device == q.device and worst(o, expected(q, k, v, True)[0]) < 0.02
            assert torch.cuda.current_device() == 0
            with torch.cuda.device(ordinal):
                o = torch.ops.tessera.fmha(q, k, v, True)
                assert worst(o, expected(q, k, v, True)[0]) < 0.02
        out = torch.full_like(q.contiguous(), float("nan")).to("cuda:1")
        q, k, v = inputs("cuda:1")
        q = q.contiguous()
        if step is None:
            step = tessera.Kernel("fmha", head_dim=64).bind(q=q, k=k, v=v, o=out).taking("q", "k", "v", "o")
        step(q, k, v, out)
        assert worst(out, expected(q, k, v, False)[0]) < 0.02
        with pytest.raises(tessera.UsageError):
            step(q.to("cuda:0"), k, v, out)
        with pytest.raises(tessera.UsageError):
            tessera.fmha(q, k.to("cuda:0"), v)
