"""The package: what importing costs, errors, lists of kernels, tensors of other libraries, stubs."""

import ast
import gc
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest
import tessera
from tessera import _core, arrays

LIST = {"kernels": [{"op": "fmha", "head_dim": [64, 81], "mask": "causal"}]}


def test_import_is_quick_and_needs_no_other_package():
    code = (
        "import sys, time; t = time.process_time(); import tessera; t = time.process_time() - t;"
        "print(t, [name for name in ('numpy', 'torch', 'cupy', 'json') if name in sys.modules])"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    seconds, names = zip(*(run.stdout.strip().split(" ", 1) for run in runs))
    assert set(names) == {"[]"}
    assert min(map(float, seconds)) < 0.15


def test_errors_are_of_the_documented_kinds():
    x = numpy.zeros((1, 4, 2, 64), numpy.float16)
    refused = [
        (lambda: tessera.fmha(x, x, x), "q lies on the host: give tensors on a GPU, or device='emulator'"),
        (lambda: tessera.fmha(x, x[..., :32], x, device="emulator"), r"k: shape .* given, \[1, 4, 2, 64\] expected"),
        (lambda: tessera.fmha(x, x, x[:, :3], device="emulator"), "seqlen_k is 4 by k and 3 by v"),
        (lambda: tessera.fmha(x, x, x, device="cpu"), "device = cpu: must be None, 'gpu', 'emulator'"),
        (lambda: tessera.fmha(x, x, x, mask="casual", device="emulator"), "mask = casual: must be one of none, causal"),
        (lambda: tessera.fmha(x.tolist(), x, x), "q is a list: must be a tensor"),
        (lambda: tessera.fmha(x.astype(complex), x, x), "q: element type complex128 is none that tessera has"),
        (lambda: tessera.Kernel("fhma"), "fmha"),
        (lambda: tessera.plan("fmha", head_dims=64), "fmha has no field head_dims"),
        (lambda: tessera.Jit(compile_policy="never"), "compile_policy = never: must be one of allow, warn, forbid"),
        (lambda: tessera.Emulator(schedule="late"), "schedule = late: must be one of fair"),
        (lambda: tessera.check({"kernels": [{"op": "fmha", "head_dims": 64}]}), "shapes:1:"),
    ]
    for call, message in refused:
        with pytest.raises(tessera.UsageError, match=message):
            call()
    with pytest.raises(tessera.UnsupportedError, match="fmha has no kernel for head_dim 81") as caught:
        tessera.Kernel("fmha", head_dim=81)
    assert caught.value.kind == "unsupported" and isinstance(caught.value, tessera.TesseraError)
    forbidding = tessera.Jit(compile_policy="forbid", ignore_environment=True)
    with pytest.raises(tessera.UnsupportedError, match="warm it with: tessera warm fmha --head-dim 72"):
        tessera.Kernel("fmha", jit=forbidding, head_dim=72)
    with pytest.raises(tessera.IoError, match="no compiler"):
        nowhere = tessera.Jit(nvrtc="/nonexistent/libnvrtc.so", ignore_environment=True)
        tessera.Kernel("fmha", jit=nowhere, head_dim=72)


def test_the_emulator_says_what_went_wrong():
    x = numpy.zeros((1, 4, 2, 64), numpy.float16)
    hurried = tessera.Emulator(max_seconds=1e-9)
    with pytest.raises(tessera.DeviceError, match="^failure: time-budget in tessera_gemm_"):
        tessera.gemm(x[0, 0], x[0, 1], device=hurried)
    assert hurried.findings[0].is_failure
    assert hurried.info["is_emulated"] and hurried.info["compute_major"] == 9


def test_a_signal_ends_a_launch_in_the_emulator():
    x = numpy.zeros((1, 2048, 8, 64), numpy.float16)  # minutes of emulation
    emulator = tessera.Emulator()
    tessera.fmha(x[:, :64], x[:, :64], x[:, :64], device=emulator)  # compiles
    beginning = time.monotonic()
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        tessera.fmha(x, x, x, device=emulator)
    assert time.monotonic() - beginning < 10
    timer.join()
    emulator.take_findings()
    assert emulator.findings == []
    o = tessera.fmha(x[:, :64], x[:, :64], x[:, :64] + 1, device=emulator)
    assert (o == 1).all()


def test_a_signals_handler_launches_on_another_emulator():
    x = numpy.zeros((1, 1024, 4, 64), numpy.float16)
    emulator, other = tessera.Emulator(), tessera.Emulator()
    said = []
    tessera.fmha(x, x, x, device=emulator)  # compiles
    tessera.fmha(x[:, :64], x[:, :64], x[:, :64], device=other)

    def handler(number, frame):
        with pytest.raises(tessera.UsageError, match="in the midst of a launch"):
            tessera.fmha(x[:, :64], x[:, :64], x[:, :64], device=emulator)
        said.append(tessera.fmha(x[:, :64], x[:, :64], x[:, :64] + 1, device=other))

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        o = tessera.fmha(x, x, x + 2, device=emulator)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (o == 2).all() and len(said) == 1 and (said[0] == 1).all()


def test_lists_are_planned_warmed_and_checked(tmp_path):
    assert "_d64_" in tessera.plan("fmha", head_dim=64)["kernel"]
    events = []
    jit = tessera.Jit(cache_dir=tmp_path, on_event=lambda *event: events.append(event[:3]))
    before = jit.check(LIST)
    assert (before["problems"], before["covered"], before["rejected"]) == (2, 0, 1)
    assert before["missing"][0]["warm"] == "tessera warm fmha --head-dim 64 --mask causal"
    file = tmp_path / "shapes.json"
    file.write_text(json.dumps(LIST))
    assert jit.warm(file, dry_run=True)["compiled"] == 0
    steps = []
    report = jit.warm(LIST["kernels"], jobs=1, on_progress=lambda *step: steps.append(step))
    assert (report["compiled"], report["failed"], report["cancelled"]) == (1, 0, False)
    assert steps[-1][:2] == (1, 1) and steps[-1][4] == report["entries"][0]["entry"]
    assert [kind for kind, _, _ in events] == ["compile_started", "compile_finished"]
    assert jit.check(json.dumps(LIST))["covered"] == 1
    assert jit.stats()["compiles"] == 1

    def fails(*step):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tessera.Jit(cache_dir=tmp_path).warm(LIST, on_progress=fails)
    # Any truth value stops, and one that is none is told.
    two = [{"op": "fmha", "head_dim": [64, 80]}]
    for truth, cancelled in ((1, True), ("stop", True), (numpy.True_, True), (0, False), ([], False)):
        report = tessera.Jit(cache_dir=tmp_path).warm(two, jobs=1, on_progress=lambda *step: truth)
        assert report["cancelled"] is cancelled, truth
    with pytest.raises(ValueError, match="ambiguous"):
        tessera.Jit(cache_dir=tmp_path).warm(two, on_progress=lambda *step: numpy.zeros(2))


def test_on_event_may_ask_for_the_kernel(tmp_path):
    asked = []

    def on_event(kind, *rest):
        if kind == "hit":
            return
        try:
            asked.append((kind, tessera.Kernel("fmha", head_dim=64, jit=jit).name))
        except tessera.UsageError as error:
            asked.append((kind, error.message))

    jit = tessera.Jit(cache_dir=tmp_path, on_event=on_event)
    name = tessera.Kernel("fmha", head_dim=64, jit=jit).name
    (first, refusal), second = asked[:2]
    assert first == "compile_started" and "ask when the compile has finished" in refusal
    assert second == ("compile_finished", name)


ENDINGS = {
    "emulating": "while True: tessera.fmha(q, q, q, device='emulator')",
    "warming": "tessera.Jit(cache_dir=folder, on_event=lambda *event: None).warm([{'op': 'fmha', 'head_dim': [64, 80]}], jobs=1, on_progress=lambda *step: 0)",
}


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("delay", (0.1, 0.5))
def test_a_daemon_thread_meets_the_end_of_the_process(tmp_path, name, delay):
    code = f"""
import builtins, sys, threading, time, numpy, tessera
folder = sys.argv[1]
q = numpy.zeros((1, 256, 2, 64), numpy.float16)
tessera.fmha(q[:, :8], q[:, :8], q[:, :8], device="emulator")
def work():
    {ENDINGS[name]}
class Slow:
    def __del__(self):
        time.sleep(1)  # the interpreter has begun to end, and others may take its lock
builtins.keep = Slow()
threading.Thread(target=work, daemon=True).start()
time.sleep({delay})
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def _emulate(window):
    q = numpy.ones((1, 8, 1, 64), numpy.float16)
    return float(tessera.fmha(q, q, q, window=(window, 0), device="emulator").sum())


def test_children_of_fork_emulate_where_no_thread_does():
    expected = [_emulate(window) for window in (1, 2, 3)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_emulate, (1, 2, 3)).get(timeout=120) == expected


def test_what_the_emulator_is_given_it_gives_back():
    """Memory of launches, and the address space of emulators: their number has no bound."""
    kernel = tessera.Kernel("fmha", head_dim=64, dtype="f16")
    q = numpy.ones((1, 4, 1, 64), numpy.float16)

    def pages(at):
        gc.collect()
        return int(pathlib.Path("/proc/self/statm").read_text().split()[at])

    def bind(times):
        for _ in range(times):
            kernel.bind(q=q, k=q, v=q, device="emulator")

    bind(500)
    before = pages(1)
    bind(2000)
    assert pages(1) - before < 1000  # 4 MB; eight pages of each would be 64 MB
    tessera.Emulator()
    before = pages(0)
    for _ in range(1200):
        tessera.Emulator()
    assert pages(0) - before < 2**18  # 1 GiB


class Exported:
    """A tensor of a library that is none of the known ones."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnGpu:
    def __init__(self, **interface):
        self.__cuda_array_interface__ = {"version": 3, "strides": None, **interface}


def test_tensors_of_any_library(random):
    a, b = (random.standard_normal(shape).astype(numpy.float16) for shape in ((16, 64), (24, 64)))
    view = arrays.view("a", Exported(a))
    assert (view.address, view.shape, view.strides) == (a.ctypes.data, (16, 64), (64, 1))
    assert (view.dtype, view.ordinal) == ("f16", None)
    d = tessera.gemm(Exported(a), Exported(b), device="emulator")
    assert (d == tessera.gemm(a, b, device="emulator")).all()
    view = arrays.view("x", OnGpu(data=(4096, False), shape=(3, 4), typestr="<f4", strides=(32, 4)))
    assert (view.address, view.shape, view.strides, view.dtype, view.ordinal) == (4096, (3, 4), (8, 1), "f32", 0)
    with pytest.raises(tessera.UsageError, match="a: an array of test_package must be dense and on the host"):
        far = OnGpu(data=(4096, False), shape=(16, 64), typestr="<f2")
        tessera.gemm(far, b, out=numpy.empty((16, 24), numpy.float16), device="emulator")


def test_versions_are_one():
    assert tessera.__version__ == importlib.metadata.version("tessera-kernels")
    assert _core.abi_version() >= 1


def test_stubs_name_what_there_is():
    folder = pathlib.Path(tessera.__file__).parent
    assert (folder / "py.typed").exists()
    stub = ast.parse((folder / "_core.pyi").read_text())
    names = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert names == {name for name in dir(_core) if not name.startswith("_")}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            members = {member.name for member in node.body if isinstance(member, ast.FunctionDef)} - {"__init__"}
            assert members == {name for name in dir(getattr(_core, node.name)) if not name.startswith("_")}
    for name in tessera.__all__:
        assert getattr(tessera, name).__doc__, name


def test_tensors_of_two_gpus_are_refused():
    shape = (1, 40, 2, 64)
    q, k, v = (arrays.View(0x10000, shape, arrays.dense_strides(shape), "f16", gpu, "none", None) for gpu in (1, 0, 1))
    with pytest.raises(tessera.UsageError, match="k lies on GPU 0, q on GPU 1: one GPU is expected"):
        tessera.Kernel("fmha", head_dim=64, dtype="f16").bind(q=q, k=k, v=v)
