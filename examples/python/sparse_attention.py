"""A decode step of sparse attention (DeepSeek-V4's kind) over narrow caches, from hidden rows to the next product's input; beside float64.

    python sparse_attention.py           # small, NumPy arrays in the emulator: no GPU, no PyTorch
    python sparse_attention.py --gpu     # 32 sequences of 16,384 entries, PyTorch on its device and stream

Caches are written first: entries of 584 bytes (448 e4m3, 64 bf16 that RoPE turned, 7 powers of two) and the indexer's rows of 132 (e4m3) and of 68
(e2m1 with a power of two for 32). A step is five launches: the indexer's query in e4m3 or in MXFP4, scores of all entries, the best of each query as places in pages, attention over these and a window with a sink,
and the inverse RoPE with quantising; it runs with either indexer. What is compared: the chosen entries with those that float64 chooses by the same codes (they must agree), and with those of exact scores (recall, which says what
the codes lose: of 512 out of 16,384 FP4 finds 84 %, however it is computed); o of the entries that were chosen.
"""

import argparse
import sys

import numpy
import tessera

PAGE, LATENT, ROTATED, INDEX = 64, 512, 64, 128
WRITE_ENTRY = "rmsnorm+rope(448..511)+mla_584"
# Of an indexer: the chain of its query and that of its cache's rows, bytes of a head's codes.
INDEXERS = {"e4m3": ("e4m3", "indexer_132", INDEX), "mxfp4": ("mxfp4", "indexer_68", INDEX // 2)}
LEAST_RECALL, LEAST_AGREEMENT, LEAST_COSINE = 0.9, 0.99, 0.998  # recall: of e4m3
E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def turned(x, positions, columns=ROTATED):
    """x with RoPE on its last columns, pairs (2i, 2i + 1), in float64."""
    x = x.astype(numpy.float64)
    angle = positions[..., None] * 10000.0 ** (-numpy.arange(0, columns, 2) / columns)
    even, odd = x[..., -columns::2].copy(), x[..., 1 - columns :: 2].copy()
    x[..., -columns::2] = even * numpy.cos(angle) - odd * numpy.sin(angle)
    x[..., 1 - columns :: 2] = even * numpy.sin(angle) + odd * numpy.cos(angle)
    return x


def normed(x, weight=1.0):
    x = x.astype(numpy.float64)
    return x / numpy.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight


class Problem:
    """bf16 inputs of sequences, and where their entries lie: pages of the caches in any order."""

    def __init__(self, random, batch, heads, index_heads, entries, window, top_k, kind):
        import ml_dtypes

        def rows(*shape):
            return random.standard_normal(shape, numpy.float32).astype(ml_dtypes.bfloat16)

        self.batch, self.heads, self.index_heads, self.top_k, self.window = batch, heads, index_heads, top_k, window
        self.lengths = random.integers(entries // 2, entries + 1, batch).astype(numpy.int32)
        self.lengths[0] = min(top_k - 1, entries)  # fewer entries than are listed
        self.max_pages = -(-entries // PAGE)
        self.pages = batch * self.max_pages
        self.block_table = random.permutation(self.pages).astype(numpy.int32).reshape(batch, self.max_pages)
        self.swa_lens = random.integers(1, window + 1, batch).astype(numpy.int32)
        self.sequence = numpy.repeat(numpy.arange(batch), self.lengths)
        self.place = numpy.concatenate([numpy.arange(length) for length in self.lengths]).astype(numpy.int32)
        self.slots = (self.block_table[self.sequence, self.place // PAGE] * PAGE + self.place % PAGE).astype(numpy.int32)
        self.entries, self.index_keys = rows(len(self.slots), LATENT), rows(len(self.slots), INDEX)
        if kind == "heavy-tailed":
            self.index_keys = random.standard_t(3, self.index_keys.shape).astype(ml_dtypes.bfloat16)
        elif kind == "outlier channels":
            self.index_keys[:, 5::40] *= 20
        self.weight = (1 + 0.1 * random.standard_normal(LATENT, numpy.float32)).astype(ml_dtypes.bfloat16)
        self.in_window = rows(batch, window, LATENT)
        self.q, self.index_q = rows(batch * heads, LATENT), rows(batch * index_heads, INDEX)
        self.index_weights = (random.random((batch, index_heads), numpy.float32) / index_heads).astype(numpy.float32)
        self.sink = random.standard_normal(heads, numpy.float32)
        self.position = (self.lengths + window).astype(numpy.int32)  # of the query


def step(p, on, run, multiply, index_format):
    """on: an array of the host where the kernels' tensors are; run: device= of every call. Returns y, its scales, the places, and what chose them: the query's codes and
    their scales, and the indexer's cache."""
    at = dict(page_size=PAGE, **run)
    cache = tessera.rows(on(p.entries), WRITE_ENTRY, weight=on(p.weight), positions=on(p.place), slots=on(p.slots), pages=p.pages, eps=1e-6, **at)["cache"]
    quantised, index_rows, bytes_of_head = INDEXERS[index_format]
    turn = "rope(64..127)+hadamard(128)+"
    index_cache = tessera.rows(on(p.index_keys), turn + index_rows, positions=on(p.place), slots=on(p.slots), pages=p.pages, **at)["cache"]
    pages = -(-p.window // PAGE)
    slots = (numpy.arange(p.batch)[:, None] * pages * PAGE + numpy.arange(p.window)).astype(numpy.int32).reshape(-1)
    places = numpy.tile(numpy.arange(p.window, dtype=numpy.int32), p.batch)
    in_window = on(p.in_window.reshape(-1, LATENT))
    window = tessera.rows(in_window, WRITE_ENTRY, weight=on(p.weight), positions=on(places), slots=on(slots), pages=p.batch * pages, eps=1e-6, **at)["cache"]
    position = on(p.position)
    q = tessera.rows(on(p.q), "rmsnorm(no_weight)+rope(448..511)+same", positions=position, heads=p.heads, eps=1e-6, **run)["y"]

    # The step.
    codes = tessera.rows(on(p.index_q), turn + quantised, positions=position, heads=p.index_heads, **run)
    fields = {"arch": run["device"].arch} if run else {}
    # One scale of a head goes into its weight; four are the product's.
    if index_format == "e4m3":
        weights, more = multiply(on(p.index_weights), codes["y_scales"].reshape(p.batch, p.index_heads)), {}
    else:
        weights, more = on(p.index_weights), {"q_scales": codes["y_scales"].reshape(p.batch, 1, p.index_heads, 4)}
    lengths, table = on(p.lengths), on(p.block_table)
    index = tessera.Kernel("indexer", format=index_format, kv_layout="paged", page_size=PAGE, heads=p.index_heads, **fields)
    index_q = codes["y"].reshape(p.batch, 1, p.index_heads, bytes_of_head)
    found = index(q=index_q, weights=weights[:, None], cache=index_cache, block_table=table, context_lens=lengths, **more, **run)
    scores = found["scores"]
    chosen = tessera.topk(scores, p.top_k, lengths=lengths, block_table=table, page_size=PAGE, **run)["indices"]
    attention = tessera.Kernel(
        "fmha", head_dim=LATENT, v_is_k=True, kv_pools="sparse_window", kv_cache="mla_584", heads_q=p.heads, batch=p.batch, seqlen_q=1, topk=p.top_k, **fields
    )
    o = attention(
        q=q.reshape(p.batch, 1, p.heads, LATENT),
        k=cache,
        swa_k=window.reshape(p.batch, pages, -1),
        indices=chosen.reshape(p.batch, 1, p.top_k),
        swa_lens=on(p.swa_lens),
        sink=on(p.sink),
        heads_kv=1,
        seqlen_k=p.pages * PAGE,
        seqlen_swa=p.window,
        **run,
    )["o"]
    made = tessera.rows(o.reshape(p.batch * p.heads, LATENT), "rope(448..511,inverse)+e4m3", positions=position, heads=p.heads, **run)
    return made["y"], made["y_scales"], chosen, (codes["y"], codes["y_scales"], index_cache)


def exact_scores(p):
    """Of the indexer, float64, one list for each sequence. The Hadamard transform of both sides changes no product."""
    keys = turned(p.index_keys, p.place.astype(numpy.float64))
    q = turned(p.index_q.reshape(p.batch, p.index_heads, INDEX), p.position[:, None].astype(numpy.float64))
    return [
        numpy.einsum("h,hj->j", p.index_weights[b].astype(numpy.float64), numpy.maximum(q[b] @ keys[p.sequence == b].T, 0)) for b in range(p.batch)
    ]


def decoded(codes, scales, index_format):
    """Rows of codes (u8) in float64, times a scale of a row, or of 32 columns."""
    if index_format == "e4m3":
        import ml_dtypes

        return codes.view(ml_dtypes.float8_e4m3fn).astype(numpy.float64) * scales.view(numpy.float32)
    values = numpy.stack([E2M1[codes & 15], E2M1[codes >> 4]], -1).reshape(len(codes), INDEX)
    return values * numpy.repeat(2.0 ** (scales.astype(numpy.float64) - 127), 32, -1)


def scores_of_codes(p, index_format, codes, scales, cache, sequences=4):
    """Of the first sequences, float64: what the indexer's scores are, but for rounding."""
    row = INDEXERS[index_format][2]
    q = decoded(codes.reshape(-1, row), scales.reshape(p.batch * p.index_heads, 4), index_format).reshape(p.batch, p.index_heads, INDEX)
    found = []
    for b in range(min(p.batch, sequences)):
        pages = cache[p.block_table[b]].reshape(p.max_pages, -1)
        keys = decoded(pages[:, : PAGE * row].reshape(-1, row), pages[:, PAGE * row :].reshape(-1, 4), index_format)[: p.lengths[b]]
        found.append(p.index_weights[b].astype(numpy.float64) @ numpy.maximum(q[b] @ keys.T, 0))
    return found


def recall_of(p, chosen, scores):
    """The share of the entries with the largest of these scores that were chosen."""
    found = wanted = 0
    for b, of_sequence in enumerate(scores):
        best = numpy.argsort(-of_sequence, kind="stable")[: p.top_k]
        places = p.block_table[b, best // PAGE] * PAGE + best % PAGE
        found += numpy.isin(places, chosen[b]).sum()
        wanted += len(best)
    return found / wanted


def expected(p, chosen):
    """o after the inverse RoPE, float64, of the entries that were chosen."""
    weight = p.weight.astype(numpy.float64)
    entries = turned(normed(p.entries, weight), p.place.astype(numpy.float64))
    of_place = numpy.full(p.pages * PAGE, -1)
    of_place[p.slots] = numpy.arange(len(p.slots))
    window = turned(normed(p.in_window, weight), numpy.arange(p.window, dtype=numpy.float64))
    q = turned(normed(p.q).reshape(p.batch, p.heads, LATENT), p.position[:, None].astype(numpy.float64))
    o = numpy.empty((p.batch, p.heads, LATENT))
    for b in range(p.batch):
        keys = numpy.concatenate([entries[of_place[chosen[b][chosen[b] >= 0]]], window[b, : p.swa_lens[b]]])
        logits = q[b] @ keys.T / LATENT**0.5
        most = numpy.maximum(logits.max(-1), p.sink)[:, None]
        weights = numpy.exp(logits - most)
        o[b] = weights @ keys / (weights.sum(-1, keepdims=True) + numpy.exp(p.sink[:, None] - most))
    return turned(o, -p.position[:, None].astype(numpy.float64))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    is_on_gpu = parser.parse_args().gpu
    shape = (32, 64, 64, 16384, 128, 512) if is_on_gpu else (3, 16, 8, 300, 128, 64)
    random = numpy.random.default_rng()
    if is_on_gpu:
        import torch

        def on(array):
            if array.dtype.name == "bfloat16":
                return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16).cuda()
            return torch.from_numpy(numpy.ascontiguousarray(array)).cuda()

        run, multiply = {}, torch.mul

        def back(tensor):
            return tensor.float().cpu().numpy() if tensor.dtype != torch.int32 else tensor.cpu().numpy()

        def bytes_of(tensor):
            return tensor.contiguous().view(torch.uint8).cpu().numpy()
    else:
        on, run, multiply = (lambda array: array), {"device": tessera.Emulator(detects_races=True)}, numpy.multiply

        def back(array):
            return numpy.asarray(array).astype(numpy.int32 if array.dtype == numpy.int32 else numpy.float32)

        def bytes_of(array):
            return numpy.ascontiguousarray(array).view(numpy.uint8)

    is_right = True
    for kind in ("normal", "heavy-tailed", "outlier channels"):
        p = Problem(random, *shape, kind)
        exact = exact_scores(p)
        for index_format in INDEXERS:
            y, scales, chosen, index = step(p, on, run, multiply, index_format)
            y, scales, chosen = back(y), back(scales), back(chosen)
            o = y.reshape(p.batch, p.heads, LATENT).astype(numpy.float64) * numpy.repeat(scales.reshape(p.batch, p.heads, -1), 128, -1)
            agreement = recall_of(p, chosen, scores_of_codes(p, index_format, *map(bytes_of, index)))
            reference, recall = expected(p, chosen), recall_of(p, chosen, exact)
            cosine = (o * reference).sum() / numpy.sqrt((o**2).sum() * (reference**2).sum())
            of = f"{p.batch} sequences, {p.top_k} entries of up to {shape[3]}"
            print(f"{kind}, {index_format} indexer: {of}: as float64 chooses by its codes {agreement:.4f}, recall {recall:.4f}, cosine of o with float64 {cosine:.6f}")
            is_right &= bool(agreement > LEAST_AGREEMENT and cosine > LEAST_COSINE)
            is_right &= bool(index_format != "e4m3" or recall > LEAST_RECALL)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
