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
    parts = [t[..., 1:33] for t in (q, k, v)]  # misaligned: 2 bytes behind a multiple of 16
    y = tt.scaled_dot_product_attention(*parts, enable_gqa=True)
    assert worst(y.transpose(1, 2), expected(*(t.transpose(1, 2) for t in parts), False)[0]) < 0.02
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
        lambda: tt.scaled_dot_product_attention(q, q, q[:, :, :8]),  # another number of values than of keys
        lambda: tt.scaled_dot_product_attention(q, q, q, scale=float("inf")),
        lambda: tt.scaled_dot_product_attention(q, q, q, scale=torch.tensor(0.5)),
        lambda: tt.scaled_dot_product_attention(*(t.to("meta") for t in (q, q, q))),
    ):
        before = len(left_to_pytorch)
        assert call() is None and len(left_to_pytorch) == before + 1


class Tagged(torch.Tensor):
    pass


def test_scaled_dot_product_attention_within_pytorchs_own_machinery():
    """Where something stands between a call and its values, what comes out is what PyTorch's function gives."""
    tt.emulate_on_cpu()
    fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor", reason="PyTorch has no FakeTensorMode")
    forward_ad = torch.autograd.forward_ad
    print("seed", torch.seed())
    q, k, v = (torch.randn(2, 2, 8, 16, dtype=torch.float16) for _ in range(3))
    stacked = [torch.stack((t, t * 0.5, -t)) for t in (q, k, v)]

    def in_autocast(function):
        with torch.autocast("cpu", torch.bfloat16):
            return function(q, k, v)

    def in_fake_mode(function):
        with fake_tensor.FakeTensorMode() as mode:
            return function(*(mode.from_tensor(t) for t in (q, k, v)))

    def in_fake_mode_of_real(function):
        with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
            return function(q, k, v)

    def of_dual_numbers(function):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(function(forward_ad.make_dual(q, torch.ones_like(q)), k, v)).tangent

    def traced(function):
        return torch.jit.trace(lambda *t: function(*t), (q, k, v))(k, v, q)

    def outcome(call, function):
        try:
            return call(function)
        except Exception as error:
            return error

    for call in (
        in_autocast,
        in_fake_mode,
        in_fake_mode_of_real,
        of_dual_numbers,
        traced,
        lambda function: torch.vmap(function)(*stacked),
        lambda function: torch.func.jvp(lambda x: function(x, k, v), (q,), (q,)),
        lambda function: torch.func.grad(lambda x: function(x, k, v).float().sum())(q),
        lambda function: function(*(t.as_subclass(Tagged) for t in (q, k, v))),
        lambda function: function(*(t.to("meta") for t in (q, k, v))),
        lambda function: function(q.numpy(), k, v),
        lambda function: function(q, k, v, scale="half"),
        lambda function: function(q, k, v, None, 0.0, False, 0.5),
    ):
        own = outcome(call, torch.nn.functional.scaled_dot_product_attention)
        ours = outcome(call, tt.scaled_dot_product_attention)
        assert type(ours) is type(own), (ours, own)
        if isinstance(own, torch.Tensor):
            assert (ours.shape, ours.dtype, ours.device) == (own.shape, own.dtype, own.device)
            if own.device.type == "cpu" and not isinstance(own, fake_tensor.FakeTensor):
                assert worst(ours, own.double()) < 0.01


@pytest.mark.parametrize("dynamic", [False, True])
def test_scaled_dot_product_attention_in_a_compiled_graph(dynamic):
    """One operator there, of whatever address, and PyTorch's function is in its place for gradients."""
    tt.emulate_on_cpu()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print("seed", torch.seed())
    called = []

    def backend(graph, inputs):
        called.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    def attend(q, k, v):
        return tt.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)

    memory = torch.randn(2 * 4 * 40 * 64 + 1, dtype=torch.bfloat16, device=device)
    for length, offset, needs_gradients in ((40, 0, False), (40, 1, False), (24, 0, False), (24, 0, True)):
        q = memory[offset : offset + 2 * 4 * length * 64].view(2, 4, length, 64)
        k, v = (torch.randn(2, 2, length, 64, dtype=torch.bfloat16, device=device) for _ in range(2))
        reference = expected(*(t.transpose(1, 2) for t in (q * 0.3 * 8, k, v)), True)[0].transpose(1, 2)
        q = q.detach().requires_grad_(needs_gradients)
        for chosen in (backend, "aot_eager"):
            torch._dynamo.reset()
            called.clear()
            o = torch.compile(attend, fullgraph=True, dynamic=dynamic, backend=chosen)(q, k, v)
            assert worst(o, reference) < 0.03
            if chosen is backend:
                assert ("tessera.sdpa" in called) != needs_gradients
    q = q.detach()
    reference = expected(*(t.transpose(1, 2) for t in (q, k, v)), False)[0].transpose(1, 2)
    assert worst(torch.export.export(_Attention(), (q, k, v)).module()(q, k, v), reference) < 0.03


class _Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return tt.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def test_operators_refuse_what_needs_derivatives():
    tt.emulate_on_cpu()
    q, k, v = inputs(seqlen_k=40)
    fmha = torch.ops.tessera.fmha
    message = "torch.ops.tessera.fmha has no derivatives"
    with pytest.raises(tessera.UnsupportedError, match=message):
        fmha(q, k.clone().requires_grad_(), v)
    with pytest.raises(tessera.UnsupportedError, match=message):
        fmha(q, v=v, k=k.clone().requires_grad_())
    with pytest.raises(tessera.UnsupportedError, match=message):
        torch.func.grad(lambda x: fmha(x, k, v).float().sum())(q)
    with pytest.raises(tessera.UnsupportedError, match=message):
        torch.func.jvp(lambda x: fmha(x, k, v), (q,), (q,))
    with pytest.raises(Exception, match=message):
        torch.compile(fmha, fullgraph=True, backend="aot_eager")(q, k.clone().requires_grad_(), v)
    cache = [torch.zeros(2, 16, 2, 64, dtype=torch.bfloat16) for _ in range(2)]
    slots = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(tessera.UnsupportedError, match="torch.ops.tessera.append_kv has no derivatives"):
        torch.ops.tessera.append_kv(k[0, :1].clone().requires_grad_(), v[0, :1], *cache, slots)
    with pytest.raises(tessera.UnsupportedError, match="torch.ops.tessera.gemm has no derivatives"):
        torch.ops.tessera.gemm(q[0, 0], k[0, 0], torch.ones(2, dtype=torch.bfloat16, requires_grad=True))
    reference = expected(q, k, v, False)[0]
    for without in (torch.no_grad, torch.inference_mode):
        with without():
            assert worst(fmha(q, k.clone().requires_grad_(), v), reference) < 0.02
    assert worst(fmha(q, k.clone().requires_grad_().detach(), v), reference) < 0.02


def _refused_and_taken():
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    q, k, v = (torch.randn(2, 8, heads, 64).half() for heads in (4, 2, 2))
    cast = lambda dtype, *tensors: tuple(t.to(dtype) for t in tensors)  # noqa: E731
    for arguments in (
        cast(e4m3, q, k, v),
        (q, *cast(e4m3, k, v)),
        (q, k, v.to(e4m3)),
        (q, *cast(torch.bfloat16, k, v)),
        cast(e5m2, q, k, v),
        cast(torch.float32, q, k, v),
        (q, k[:1], v[:1]),
        (q, k, v[:, :4]),
        (q, k, v[:, :, :1]),
        (q[:, :, :3], k, v),
        (q, k[..., :32], v),
        (q[..., :40], k[..., :40], v[..., :40]),
        (q, k, v[..., :32]),
        (q[0], k[0], v[0]),
    ):
        yield "fmha", arguments
        yield "fmha_lse", arguments
    yield "fmha_out", (q, k, v, torch.empty(2, 8, 4, 32).half())
    yield "fmha_out", (q, k, v, torch.empty(2, 8, 4, 64))
    pages = [torch.randn(6, 16, 2, 64).half() for _ in range(2)]
    table, lengths = torch.zeros(2, 2, dtype=torch.int32), torch.full((2,), 8, dtype=torch.int32)
    for arguments in (
        (*pages, table, lengths),
        (*cast(e4m3, *pages), table, lengths),
        (*pages, table.long(), lengths),
        (*pages, table, lengths.long()),
        (*pages, table[0], lengths),
        (*pages, table[:1], lengths),
        (*pages, table, lengths[:1]),
        (pages[0], pages[1][:5], table, lengths),
    ):
        yield "fmha_paged", (q, *arguments)
    k, v, slots = k[:, 0], v[:, 0], torch.tensor([3, 20], dtype=torch.int32)
    for arguments in (
        (k, v[:1], *pages, slots),
        (k, v, *pages, slots.long()),
        (k, v, *pages, slots[:1]),
        (k, v, *(t[..., :32] for t in pages), slots),
        (k, v, *(t[:, :, :1] for t in pages), slots),
        (k, v, *cast(torch.bfloat16, *pages), slots),
        (k[0], v[0], *pages, slots),
        (k, v, pages[0], pages[1][:5], slots),
    ):
        yield "append_kv", arguments
    a, b, bias = torch.randn(16, 64).half(), torch.randn(24, 64).half(), torch.randn(24).half()
    for arguments in (
        cast(e4m3, a, b),
        (a.to(e5m2), b.to(e4m3)),
        (*cast(e4m3, a, b), bias),
        (*cast(e4m3, a, b), bias.bfloat16()),
        (a.to(e4m3), b),
        (a, b.bfloat16()),
        (a.float(), b.float()),
        (a, b[:, :32]),
        (a[None], b),
        (a[None].expand(2, 16, 64), b[None].expand(3, 24, 64)),
        (a[0], b[0]),
        (a, b, bias.float()),
        (a, b, bias[:23]),
        (a, b, bias[None]),
        (a, b, None, "tanh"),
    ):
        yield "gemm", arguments


@pytest.mark.skipif(not hasattr(torch, "float8_e4m3fn"), reason="PyTorch has no type of 8 bits")
def test_meta_functions_answer_as_the_operators_do():
    """The same shapes and types, or the same class of error."""
    tt.emulate_on_cpu()
    print("seed", torch.seed())

    def outcome(name, arguments):
        try:
            made = getattr(torch.ops.tessera, name)(*arguments)
        except tessera.TesseraError as error:
            return type(error)
        return [(t.shape, t.dtype) for t in (made if isinstance(made, tuple) else (made,)) if t is not None]

    for name, arguments in _refused_and_taken():
        on_meta = [t.to("meta") if isinstance(t, torch.Tensor) else t for t in arguments]
        shown = [(t.shape, t.dtype) if isinstance(t, torch.Tensor) else t for t in arguments]
        assert outcome(name, on_meta) == outcome(name, arguments), (name, shown)


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
