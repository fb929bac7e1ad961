"""A layer of experts, from hidden states to hidden states, without a number that comes back to the host; beside float64.

    python mixture_of_experts.py                 # small, NumPy arrays in the emulator: no GPU, no PyTorch
    python mixture_of_experts.py --e4m3          # products of e4m3 with fp32 factors for blocks of 128 (DeepSeek's form); the first one
                                                 # has the gate, and quantises
    python mixture_of_experts.py --mxfp4         # weights of four bits, 16-bit activations; the gate in the first product
    python mixture_of_experts.py --gpu [--e4m3 | --mxfp4]  # 4,096 tokens of PyTorch on its device and stream

At most six launches: the router's product, the choice of experts with the lists of each expert's rows, a product for each
expert of its rows (which the kernel gathers by the list), the gate, a second product, and the weighted sum of a
token's experts. docs/mixture-of-experts.md has them one by one.
"""

import argparse
import sys

import numpy
import tessera

TOP_K = 2


def experts(x, w, run, form):
    """x [tokens, hidden]; w: the weights by name, those of experts [experts, n, k]. run: device= of every call."""
    logits = tessera.gemm(x, w["router"], out_dtype="f32", **run)
    lists = tessera.moe_route(logits, top_k=TOP_K, scoring="softmax", **run)
    tokens, rows = x.shape[0], TOP_K * x.shape[0]
    grouped = {"grouping": "contiguous", "d_dtype": "bf16"} | ({"arch": run["device"].arch} if run else {})
    e4m3, mxfp4 = form == "e4m3", form == "mxfp4"
    if e4m3:
        grouped |= {"dtype": "e4m3", "a_scale_block": "1x128", "b_scale_block": "128x128"}
        codes = tessera.rows(x, "e4m3", **run)  # each token once, however many experts take it
        a = {"a": codes["y"][None], "sfa": codes["y_scales"][None]}
    else:
        grouped |= {"dtype": "bf16"} | ({"b_dtype": "mxfp4"} if mxfp4 else {})
        a = {"a": x[None]}
    gate = {"gate": "interleaved", "interleave": 8} if mxfp4 or e4m3 else {}
    if e4m3:
        gate |= {"d_dtype": "e4m3", "d_scale_block": "1x128"}
    first, second = tessera.Kernel("gemm", gather="rows", **(grouped | gate)), tessera.Kernel("gemm", **grouped)

    def weights(name):
        if mxfp4:
            n = w[name].shape[1]
            pack = tessera.Kernel("pack_weights", format="mxfp4", **({"arch": grouped["arch"]} if run else {}))
            packed = pack(values=w[name], scales=w[name + "_scales"], n=n, k=2 * w[name].shape[2], **run)["packed"]  # once, at load time
            return {"b": packed, "n": n}
        return {"b": w[name], "sfb": w[name + "_factors"]} if e4m3 else {"b": w[name]}

    made = first(**a, **weights("up"), groups=lists["groups"], indices=lists["indices"][None], m=rows, **run)
    gated = made["d"] if gate else tessera.rows(made["d"][0], "gate(silu)+bf16", **run)["y"][None]
    a = {"a": gated} | ({"sfa": made["sfd"]} if e4m3 else {})
    down = second(**a, **weights("down"), groups=lists["groups"], **run)["d"][0]
    y = tessera.rows(down, f"combine({TOP_K})+f32", rows=tokens, indices=lists["slots"], weights=lists["topk_weights"], **run)["y"]
    return y, lists["topk_experts"], logits


def expected(x, w, chosen):
    """The layer in float64, for the experts that were chosen."""
    logits = x @ w["router"].T
    share = numpy.exp(logits - logits.max(-1, keepdims=True))
    share = numpy.take_along_axis(share, chosen, -1)
    share /= share.sum(-1, keepdims=True)
    y = numpy.zeros((len(x), w["down"].shape[1]))
    for expert in range(len(w["up"])):
        token, slot = numpy.nonzero(chosen == expert)
        gate, up = numpy.split(x[token] @ w["up"][expert].T, 2, -1)
        y[token] += share[token, slot, None] * ((gate / (1 + numpy.exp(-gate)) * up) @ w["down"][expert].T)
    return y, logits


def turns(n, has_gate):
    """Rows in the order that the product wants: where all of the gate stand before all of up, eight of each in turn."""
    return numpy.arange(n).reshape(2, n // 16, 8).transpose(1, 0, 2).ravel() if has_gate else numpy.arange(n)


def blocks_of_128(weights, has_gate):
    """e4m3 codes of [experts, n, k], rows in turn, and a factor for each 128 x 128 of them; and what both stand for, in the order of weights."""
    import ml_dtypes

    count, n, k = weights.shape
    order = turns(n, has_gate)
    blocks = weights[:, order].reshape(count, n // 128, 128, k // 128, 128)
    factors = (numpy.abs(blocks).max((2, 4)) / 448).astype(numpy.float32)
    codes = (blocks / factors[:, :, None, :, None]).astype(ml_dtypes.float8_e4m3fn)
    wide = numpy.empty_like(weights)
    wide[:, order] = (codes.astype(numpy.float64) * factors[:, :, None, :, None]).reshape(weights.shape)
    return codes.reshape(weights.shape), factors, wide


def in_mxfp4(weights, has_gate):
    """e2m1 codes of [experts, n, k], two a byte, and a power of two for each 32; and what both stand for. has_gate: rows are all of the
    gate's, then all of up's; their codes eight of each in turn, as the product wants them."""
    numbers = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    count, n, k = weights.shape
    blocks = weights.reshape(count, n, k // 32, 32)
    power = numpy.ceil(numpy.log2(numpy.abs(blocks).max(-1) / 6)).astype(int)
    scaled = blocks / numpy.exp2(power)[..., None]
    nearest = numpy.abs(numpy.abs(scaled)[..., None] - numbers).argmin(-1)
    wide = (numpy.copysign(numbers[nearest], scaled) * numpy.exp2(power)[..., None]).reshape(weights.shape)
    codes = (nearest + 8 * numpy.signbit(scaled)).reshape(count, n, k).astype(numpy.uint8)
    scales = (power + 127).astype(numpy.uint8)
    order = turns(n, has_gate)
    packed = codes[:, order, 0::2] | codes[:, order, 1::2] << 4
    return numpy.ascontiguousarray(packed), numpy.ascontiguousarray(scales[:, order]), wide


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    forms = parser.add_mutually_exclusive_group()
    for form in ("e4m3", "mxfp4"):
        forms.add_argument("--" + form, dest="form", action="store_const", const=form)
    arguments = parser.parse_args()
    import ml_dtypes

    bf16 = ml_dtypes.bfloat16
    tokens, count, hidden, inner = (4096, 32, 2048, 1024) if arguments.gpu else (37, 8, 256, 128)
    random = numpy.random.default_rng()
    x = random.standard_normal((tokens, hidden), numpy.float32).astype(bf16)
    w = {
        "router": (random.standard_normal((count, hidden), numpy.float32) / hidden**0.5).astype(bf16),
        "up": (random.standard_normal((count, 2 * inner, hidden), numpy.float32) / hidden**0.5).astype(bf16),
        "down": (random.standard_normal((count, hidden, inner), numpy.float32) / inner**0.5).astype(bf16),
    }
    exact = {name: weights.astype(numpy.float64) for name, weights in w.items()}
    for name in ("up", "down"):
        if arguments.form == "e4m3":
            w[name], w[name + "_factors"], exact[name] = blocks_of_128(exact[name], name == "up")
        elif arguments.form == "mxfp4":
            w[name], w[name + "_scales"], exact[name] = in_mxfp4(exact[name], name == "up")
    if arguments.gpu:
        import torch

        def on_gpu(array):
            if array.dtype == bf16:
                return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16).cuda()
            if array.dtype in (numpy.float32, numpy.uint8):
                return torch.from_numpy(array).cuda()
            return torch.from_numpy(array.view(numpy.uint8)).view(torch.float8_e4m3fn).cuda()

        made = experts(on_gpu(x), {name: on_gpu(weights) for name, weights in w.items()}, {}, arguments.form)
        y, chosen, logits = (tensor.cpu().numpy() for tensor in made)
    else:
        emulator = tessera.Emulator(detects_races=True)
        y, chosen, logits = experts(x, w, {"device": emulator}, arguments.form)
    reference, wide_logits = expected(x.astype(numpy.float64), exact, chosen)
    # Experts whose logits differ by less than the product's error may change places: none that was left out may lie above.
    taken = numpy.take_along_axis(wide_logits, chosen, -1).min(-1)
    numpy.put_along_axis(wide_logits, chosen, -numpy.inf, -1)
    above = (wide_logits.max(-1) - taken).max()
    cosine = (y * reference).sum() / numpy.sqrt((y.astype(numpy.float64) ** 2).sum() * (reference**2).sum())
    error = numpy.abs(y - reference).max() / numpy.sqrt((reference**2).mean())
    print(f"{tokens} tokens, {count} experts, {TOP_K} of a token: at most {error:.1e} of the root mean square from float64, cosine {cosine:.7f}")
    return 0 if above < 1e-4 and cosine > (0.998 if arguments.form == "e4m3" else 0.99998) else 1


if __name__ == "__main__":
    sys.exit(main())
