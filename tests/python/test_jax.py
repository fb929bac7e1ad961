"""JAX: arrays on the CPU in the emulator, on a GPU where JAX has one. Skipped where JAX is not installed."""

import json
import os
import subprocess
import sys

import numpy
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402
import tessera  # noqa: E402
from reference import attention  # noqa: E402

_has_gpu = any(device.platform == "gpu" for device in jax.devices())
DEVICES = ["emulator"] + ([None] if _has_gpu else [])
pytestmark = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture(autouse=True)
def where(device):
    with jax.default_device(jax.devices("cpu" if device == "emulator" else "gpu")[0]):
        yield


def normal(random, shape, dtype=jnp.bfloat16):
    return jnp.asarray(random.standard_normal(shape), dtype)


def wide(array):
    return numpy.asarray(array.astype(jnp.float32)).astype(numpy.float64)


def worst(found, expected):
    error = numpy.abs(wide(found) - expected).max()
    return error if error == error else numpy.inf


def inputs(random, heads_kv=2, seqlen_k=50):
    return normal(random, (2, 40, 4, 64)), *(normal(random, (2, seqlen_k, heads_kv, 64)) for _ in range(2))


def test_functions_take_arrays_and_return_arrays(random, device):
    q, k, v = inputs(random)
    o, lse = tessera.fmha(q, k, v, causal=True, return_lse=True, device=device)
    expected, expected_lse = attention(wide(q), wide(k), wide(v), causal=True)
    assert isinstance(o, jax.Array) and o.dtype == jnp.bfloat16 and lse.dtype == jnp.float32
    assert worst(o, expected) < 0.02 and worst(lse, expected_lse) < 1e-3
    assert o.devices() == q.devices()


def test_within_jit_other_operations_before_and_after(random, device):
    q, k, v = inputs(random)
    traces = []

    @jax.jit
    def layer(q, k, v):
        traces.append(1)
        return tessera.fmha(q * 2, k, v, softmax_scale=0.1, device=device).astype(jnp.float32) + 1

    for _ in range(3):
        q = normal(random, q.shape)
        scaled = wide(q * 2) * 0.1 * 8
        assert worst(layer(q, k, v), attention(scaled, wide(k), wide(v))[0] + 1) < 0.02
    assert len(traces) == 1


def test_several_outputs_and_other_operators(random, device):
    a, b = normal(random, (33, 64)), normal(random, (48, 64))
    d = jax.jit(lambda a, b: tessera.gemm(a, b, out_dtype="f32", device=device))(a, b)
    assert worst(d, wide(a) @ wide(b).T) < 1e-3
    values, scales = jax.jit(lambda a: tessera.quantize(a, "nvfp4", device=device))(a)
    assert values.shape == (33, 32) and scales.shape == (33, 4)
    back = tessera.dequantize(values, scales, "nvfp4", out_dtype="f32", device=device)
    assert numpy.abs(wide(back) - wide(a)).max() <= numpy.abs(wide(a)).max() / 6 * 1.07  # half a step of the largest block, and its scale's rounding


def test_split_keys_take_workspace_of_xla(random, device):
    q = normal(random, (1, 1, 8, 64))
    k, v = (normal(random, (1, 3000, 2, 64)) for _ in range(2))
    o = jax.jit(lambda q, k, v: tessera.fmha(q, k, v, split_kv="on", device=device))(q, k, v)
    assert worst(o, attention(wide(q), wide(k), wide(v))[0]) < 0.02


def test_an_output_that_is_given_keeps_its_other_rows(random, device):
    k, v = normal(random, (4, 2, 64)), normal(random, (4, 2, 64))
    of_k, of_v = normal(random, (2, 4, 2, 64)), normal(random, (2, 4, 2, 64))
    positions, slots = jnp.asarray([3, 9, 0, 70], jnp.int32), jnp.asarray([6, -1, 0, 3], jnp.int32)

    @jax.jit
    def append(k, v, of_k, of_v):
        made = tessera.rows(k, "append_kv(64,halves)", x2=v, y=of_k, y2=of_v, positions=positions, slots=slots, rows=8, device=device)
        return made["y"], made["y2"]

    before = numpy.asarray(of_v).copy()
    made_k, made_v = append(k, v, of_k, of_v)
    expected = before.copy()
    for token, slot in enumerate([6, -1, 0, 3]):
        if slot >= 0:
            expected[slot // 4, slot % 4] = numpy.asarray(v)[token]
    assert (numpy.asarray(made_v) == expected).all() and (numpy.asarray(of_v) == before).all()
    untouched = [(page, row) for page in range(2) for row in range(4) if page * 4 + row not in (6, 0, 3)]
    assert all((numpy.asarray(made_k)[at] == numpy.asarray(of_k)[at]).all() for at in untouched)


def test_what_is_refused(random, device):
    q, k, v = inputs(random)
    with pytest.raises(tessera.UnsupportedError, match="jax.vmap over tessera's fmha: give it the batch as a dimension"):
        jax.vmap(lambda q: tessera.fmha(q, k, v, device=device))(q[None])
    with pytest.raises(tessera.UsageError, match="k is an array of numpy: all must be JAX's where one is"):
        tessera.fmha(q, numpy.asarray(k), v, device=device)
    with pytest.raises(tessera.UsageError, match="stream and workspace are XLA's"):
        tessera.fmha(q, k, v, stream=1, device=device)
    with pytest.raises(tessera.UsageError, match="seqlen_k is 50 by k and 49 by v"):
        tessera.fmha(q, k, v[:, :49], device=device)
    with pytest.raises(Exception, match="cannot be differentiated"):
        jax.grad(lambda q: tessera.fmha(q, k, v, device=device).astype(jnp.float32).sum())(q)


def test_a_program_that_another_process_exported(device, tmp_path):
    """It names a launch that this process has not seen, and brings what is needed to make it anew."""
    pytest.importorskip("flatbuffers", reason="jax.export needs flatbuffers")
    begin = (
        "import json, pathlib, sys, jax, jax.numpy as jnp, numpy\n"
        "import tessera.jax\n"
        "device, path = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])\n"
        "jax.config.update('jax_default_device', jax.devices('cpu' if device else 'gpu')[0])\n"
        "q = (jnp.arange(8 * 64).reshape(1, 1, 8, 64) % 5).astype(jnp.float16)\n"
        "k = (jnp.arange(600 * 2 * 64).reshape(1, 600, 2, 64) % 7).astype(jnp.float16)\n"
    )
    exports = (
        "target = 'tessera_emulate' if device else 'tessera_launch'\n"
        "allowed = [jax.export.DisabledSafetyCheck.custom_call(target)]\n"
        "function = jax.jit(lambda q, k: tessera.fmha(q, k, k, split_kv='on', device=device))\n"
        "path.write_bytes(jax.export.export(function, disabled_checks=allowed)(q, k).serialize())\n"
        "print(json.dumps(numpy.asarray(function(q, k), float).tolist()))\n"
    )
    calls = "print(json.dumps(numpy.asarray(jax.export.deserialize(bytearray(path.read_bytes())).call(q, k), float).tolist()))\n"
    found = []
    environment = os.environ | ({"JAX_PLATFORMS": "cpu"} if device == "emulator" else {})
    for code in (begin + exports, begin + calls):
        run = [sys.executable, "-c", code, json.dumps(device), os.fspath(tmp_path / "program")]
        done = subprocess.run(run, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1] and numpy.ptp(found[0]) > 0


def test_what_fails_is_of_its_kind(device):
    """Outside of a program; within one it is XLA's error, with the words."""
    if device is None:
        pytest.skip("a launch on a GPU does not fail")
    from tessera import jax as inside

    q = jnp.ones((1, 2048, 4, 64), jnp.float16)
    emulator = tessera.Emulator(max_seconds=0.05)
    for _ in range(2):
        with pytest.raises(tessera.DeviceError, match="time-budget") as caught:
            tessera.fmha(q, q, q, device=emulator)
    assert any(" waits " in note for note in caught.value.notes)
    with pytest.raises(jax.errors.JaxRuntimeError, match="time-budget"):
        jax.block_until_ready(jax.jit(lambda q: tessera.fmha(q, q, q, device=emulator))(q))
    with pytest.raises(tessera.UsageError, match="q lies on the CPU: give device='emulator', or arrays on a GPU"):
        tessera.fmha(q, q, q)
    if not _has_gpu:
        with pytest.raises(tessera.UsageError, match="JAX has no GPU here: give device='emulator'"):
            jax.jit(lambda q: tessera.fmha(q, q, q))(q)
    assert sum(call.emulator is emulator for call in inside._calls.values()) == 1  # the program's


def test_calls_leave_nothing_behind(random, device):
    """Values of scalars are no part of what a program names, and a call outside of one goes with its end."""
    if device is None:
        pytest.skip("of the emulator's table")
    from tessera import jax as inside

    q, k, v = (normal(random, (1, 9, 2, 64), jnp.float16) for _ in range(3))
    before = len(inside._calls)
    for scale in (0.25, 0.5):
        o = tessera.fmha(q, k, v, softmax_scale=scale, device=device)
        assert worst(o, attention(wide(q) * scale * 8, wide(k), wide(v))[0]) < 0.02
    tessera.fmha(q, k, v, device=tessera.Emulator())
    assert len(inside._calls) == before
    scaled = jax.jit(lambda q, scale: tessera.fmha(q, k, v, softmax_scale=scale, device=device), static_argnums=1)
    for scale in (0.25, 0.5, 0.25):
        assert worst(scaled(q, scale), attention(wide(q) * scale * 8, wide(k), wide(v))[0]) < 0.02
    assert len(inside._calls) == before + 1
