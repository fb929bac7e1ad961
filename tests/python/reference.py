"""Attention in float64."""

import numpy


def attention(q, k, v, causal=False, lengths=None):
    """o [batch, seqlen_q, heads_q, head_dim_v] and lse [batch, heads_q, seqlen_q]; lengths: valid keys of each sequence."""
    q, k, v = (tensor.astype(numpy.float64) for tensor in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = numpy.repeat(k, group, axis=2), numpy.repeat(v, group, axis=2)
    scores = numpy.einsum("bqhd,bkhd->bhqk", q, k) / numpy.sqrt(q.shape[-1])
    lengths = numpy.full(q.shape[0], k.shape[1]) if lengths is None else numpy.asarray(lengths)
    rows, keys = numpy.arange(q.shape[1])[:, None], numpy.arange(k.shape[1])[None]
    last = lengths[:, None, None] - 1
    seen = keys <= (numpy.minimum(last, rows + last + 1 - q.shape[1]) if causal else last)
    scores = numpy.where(seen[:, None], scores, -numpy.inf)
    most = scores.max(-1, keepdims=True)
    weights = numpy.exp(scores - most)
    total = weights.sum(-1, keepdims=True)
    return numpy.einsum("bhqk,bkhd->bqhd", weights / total, v), (most + numpy.log(total))[..., 0]
