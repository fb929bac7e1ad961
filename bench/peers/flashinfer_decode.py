"""FlashInfer's paged decode, where it can be imported: launches over pools that this program made.

FlashInfer 0.7: xqa with pools [pages, page_size, heads, columns] (NHD) and [pages, heads, page_size, columns] (HND), and the batch
decode wrapper with tensor cores (fa2), planned before, as an engine does.
"""
import torch

try:
    import flashinfer
except ImportError:
    flashinfer = None

XQA_PAGES, XQA_GROUPS = (16, 32, 64, 128), (4, 8)


def peers(q, pools, lengths, table, page_size):
    """[(name, a launch for each pair of pools, o)]. q [batch, heads_q, columns]; pools [(k, v)] of one shape; lengths: a list of ints;
    table int32 [batch, most pages of a sequence]."""
    if flashinfer is None:
        return []
    found, heads_kv, columns = [], pools[0][0].shape[2], q.shape[-1]
    if page_size in XQA_PAGES and q.shape[1] // heads_kv in XQA_GROUPS and columns == 128:
        used = torch.tensor(lengths, dtype=torch.uint32, device="cuda")
        for layout in ("NHD", "HND"):
            o, workspace = torch.full_like(q, float("nan")), torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")

            def xqa(k, v, layout=layout, o=o, workspace=workspace):
                flashinfer.decode.xqa_batch_decode_with_kv_cache(q, (k, v), workspace, table, used, max(lengths), bmm1_scale=columns ** -0.5,
                                                                 bmm2_scale=1.0, out=o, kv_layout=layout)

            def laid_out(t, layout=layout):
                return t.transpose(1, 2).contiguous() if layout == "HND" else t

            laid = [(laid_out(k), laid_out(v)) for k, v in pools]
            found.append((f"FlashInfer xqa {layout}", [lambda k=k, v=v, run=xqa: run(k, v) for k, v in laid], o))
    pages = [-(-length // page_size) for length in lengths]
    starts = torch.tensor([0, *torch.tensor(pages).cumsum(0).tolist()], dtype=torch.int32)
    indices = torch.cat([table[i, :n] for i, n in enumerate(pages)])
    last = torch.tensor([length - (n - 1) * page_size for length, n in zip(lengths, pages)], dtype=torch.int32)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.zeros(256 << 20, dtype=torch.uint8, device="cuda"), "NHD",
                                                            use_tensor_cores=True, backend="fa2")
    wrapper.plan(starts, indices, last, q.shape[1], heads_kv, columns, page_size, q_data_type=q.dtype, kv_data_type=pools[0][0].dtype,
                 o_data_type=q.dtype)
    o = torch.full_like(q, float("nan"))
    found.append(("FlashInfer fa2", [lambda k=k, v=v: wrapper.run(q, (k, v), out=o) for k, v in pools], o))
    return found
