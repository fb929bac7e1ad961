"""Calls that are mistaken: one of tessera's errors, which names the argument, and nothing is written."""

import copy
import pickle

import numpy
import pytest
import tessera


def heads(random):
    return random.standard_normal((1, 32, 2, 64)).astype(numpy.float16)


def test_read_only_outputs_are_not_written(random):
    q, k, v = (heads(random) for _ in range(3))
    frozen = numpy.zeros_like(q)
    frozen.flags.writeable = False
    for out in (frozen, numpy.frombuffer(bytes(q.nbytes), numpy.float16).reshape(q.shape)):
        with pytest.raises(tessera.UsageError, match="o is read-only"):
            tessera.fmha(q, k, v, out=out, device="emulator")
        assert not out.any()


class OfAnotherLibrary:
    """A tensor that has nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_says_what_is_read_only(random):
    q, k, v, out = (OfAnotherLibrary(heads(random)) for _ in range(4))
    out.array[:] = 0
    out.array.flags.writeable = False
    with pytest.raises(tessera.UsageError, match="o is read-only"):
        tessera.fmha(q, k, v, out=out, device="emulator")
    assert not out.array.any()
    out.array.flags.writeable = True
    assert tessera.fmha(q, k, v, out=out, device="emulator") is out and out.array.any()


def test_masked_arrays_keep_their_mask(random):
    q, k, v = (heads(random) for _ in range(3))
    with pytest.raises(tessera.UsageError, match="q is a masked array"):
        tessera.fmha(numpy.ma.masked_array(q, numpy.ones(q.shape, bool)), k, v, device="emulator")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"window": 5}, r"window = 5: must be two whole numbers"),
        ({"window": (5,)}, r"window = \(5,\): must be two whole numbers"),
        ({"window": (5.7, -1)}, r"window\[0\] = 5.7: must be a whole number"),
        ({"softmax_scale": "x"}, "softmax_scale = 'x': must be a number"),
        ({"softmax_scale": float("nan")}, "softmax_scale = nan: must be a number"),
        ({"max_seqlen_k": 16}, "max_seqlen_k goes with cu_seqlens_k or block_table"),
        ({"tile_m": [64]}, r"tile_m = \[64\]: must be one value"),
        ({"jit": "x"}, "jit = 'x': must be a tessera.Jit"),
        ({"k_scale": numpy.zeros((1, 1, 8, 8), numpy.uint8)}, "v_scale: none given, but a k_scale"),
        ({"v_scale": numpy.zeros((1, 1, 8, 8), numpy.uint8)}, "k_scale: none given, but a v_scale"),
        ({"block_table": numpy.zeros((), numpy.int32)}, "block_table: 0 dimensions given, 2 expected"),
    ],
)
def test_options_of_fmha(random, options, message):
    q, k, v = (heads(random) for _ in range(3))
    with pytest.raises(tessera.UsageError, match=message):
        tessera.fmha(q, k, v, device="emulator", **options)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x, **run: tessera.topk(x[0], 2, **run), "scores: 1 dimensions given, 2 expected"),
        (lambda x, **run: tessera.moe_route(x[0, 0], top_k=1, **run), "logits: 0 dimensions given, 2 expected"),
        (lambda x, **run: tessera.rows(x[0, 0], "rmsnorm", **run), "x: 0 dimensions given, 2 expected"),
        (lambda x, **run: tessera.rows(x, None, **run), "chain = None: must be a text"),
        (lambda x, **run: tessera.dequantize(x[0, 0], x, **run), "values: 0 dimensions given, 2 expected"),
    ],
)
def test_shapes_that_cannot_be_read(random, call, message):
    with pytest.raises(tessera.UsageError, match=message):
        call(random.standard_normal((8, 64)).astype(numpy.float32), device="emulator")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: tessera.Kernel(None), "op = None: must be the name of an operator"),
        (lambda: tessera.Kernel("fmha", head_dim=64).bind(seqlen_q=1 << 70), "seqlen_q = .*64 bits"),
        (lambda: tessera.Kernel("fmha", head_dim=64).bind(seqlen_q=32.9), "seqlen_q = 32.9: must be a whole number"),
        (lambda: tessera.Jit(cache_max_bytes="5G"), "cache_max_bytes = '5G': must be a whole number"),
        (lambda: tessera.Jit(system_cache_dirs="/opt/c"), "system_cache_dirs = /opt/c: must be a list"),
        (lambda: tessera.Jit(compile_policy=["never"]), "compile_policy = .*must be one of"),
        (lambda: tessera.Jit(on_event=5), "on_event = 5: must be a function"),
        (lambda: tessera.set_default_jit("x"), "jit = 'x': must be a tessera.Jit"),
        (lambda: tessera.Emulator(seed=-1), "seed = -1: must be at least 0"),
        (lambda: tessera.Emulator(schedule=None), "schedule = None: must be a word"),
        (lambda: tessera.check(5), "shapes = 5: must be a shape list"),
    ],
)
def test_objects_of_mistaken_arguments(make, message):
    with pytest.raises(tessera.UsageError, match=message):
        make()


def test_shape_lists_from_anywhere():
    with pytest.raises(tessera.IoError, match="/nonexistent.json: No such file"):
        tessera.check("/nonexistent.json")
    assert tessera.check('[{"op": "fmha"}]')["problems"] == 1


def test_an_emulator_has_its_own_jit(random):
    q, k, v = (heads(random) for _ in range(3))
    with pytest.raises(tessera.UsageError, match="an Emulator has a Jit of its own"):
        tessera.fmha(q, k, v, device=tessera.Emulator(), jit=tessera.Jit(compile_policy="forbid"))


def test_a_kernel_runs_on_an_emulator_of_its_jit(random):
    kernel, others = tessera.Kernel("fmha", head_dim=64), tessera.Emulator(jit=tessera.Jit())
    q, k, v = (heads(random) for _ in range(3))
    with pytest.raises(tessera.UsageError, match=r"an Emulator of another Jit than the kernel's: make it with tessera.Emulator\(jit=kernel.jit\)"):
        kernel(device=others, q=q, k=k, v=v)


def test_kernels_are_copied_with_what_holds_them():
    kernel = tessera.Kernel("fmha", head_dim=64)
    held = {"kernel": kernel, "jit": kernel.jit}
    assert copy.deepcopy(held)["kernel"] is kernel and copy.deepcopy(held)["jit"] is kernel.jit
    assert pickle.loads(pickle.dumps(kernel)).name == kernel.name
