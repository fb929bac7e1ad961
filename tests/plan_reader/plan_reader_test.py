"""What plan_reader.py makes of plans beside what the library hands to the driver's stand-in (tests/fake_cuda): grids, parameters byte for
byte, tensor maps, workspaces.

    plan_reader_test.py libtessera.so.1      with the stand-in first in LD_LIBRARY_PATH; 77: no NVRTC
"""

import ctypes
import json
import os
import struct
import sys
import tempfile

import plan_reader

USE_DEFAULT = -(2**63)
FORMS = {"pointer": "<Q", "i32": "<i", "i64": "<q", "f32": "<f"}

# Operator, fields, and sizes of launches: paged decoding that splits keys, and without sequences; 8-bit products whose k is
# split; blocks of scales, without a tensor map.
DECODE = dict(head_dim=128, mask="causal", kv_layout="paged", page_size=16, batch=8, heads_q=32, heads_kv=8, seqlen_q=1, seqlen_k=32768)
LAUNCHES = [
    ("fmha", DECODE, dict(batch=8, heads_q=32, heads_kv=8, seqlen_q=1, seqlen_k=32768, pages=16384, max_pages=2048)),
    ("fmha", DECODE, dict(batch=3, heads_q=32, heads_kv=8, seqlen_q=1, seqlen_k=1000, pages=700, max_pages=64, k_stride_page=40960)),
    ("fmha", DECODE, dict(batch=0, heads_q=32, heads_kv=8, seqlen_q=1, seqlen_k=1000, pages=700, max_pages=64)),
    ("gemm", dict(dtype="e4m3", split_k=2), dict(m=300, n=512, k=1024)),
    ("quantize", dict(format="nvfp4"), dict(rows=33, k=1024)),
]


class Field(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class Arguments(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("num_sizes", ctypes.c_size_t),
        ("scalars", ctypes.POINTER(ctypes.c_double)),
        ("num_scalars", ctypes.c_size_t),
        ("buffers", ctypes.POINTER(ctypes.c_uint64)),
        ("num_buffers", ctypes.c_size_t),
        ("workspace", ctypes.c_uint64),
        ("workspace_bytes", ctypes.c_int64),
    ]


class Library:
    def __init__(self, path):
        self.tessera = ctypes.CDLL(path)
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.driver.fake_cuda_record.restype = ctypes.c_char_p
        for function in (self.tessera.tessera_error_message, self.tessera.tessera_kernel_plan):
            function.restype = ctypes.c_char_p
        self.jit = ctypes.c_void_p()
        self.call("tessera_jit_open", None, ctypes.byref(self.jit))

    def call(self, function, *arguments):
        if getattr(self.tessera, function)(*arguments) != 0:
            raise RuntimeError(self.tessera.tessera_error_message().decode())

    def record(self):
        return self.driver.fake_cuda_record().decode().splitlines()

    def kernel(self, op, fields):
        kernel = ctypes.c_void_p()
        texts = (Field * len(fields))(*[Field(name.encode(), str(value).encode()) for name, value in fields.items()])
        self.call("tessera_jit_kernel", self.jit, op.encode(), texts, ctypes.c_size_t(len(fields)), ctypes.byref(kernel))
        return kernel

    def launch(self, kernel, launch, given, pointers):
        """The record of a launch, and the workspace that it needs."""
        sizes = [given.get(size["name"], USE_DEFAULT) for size in launch["sizes"]]
        buffers = [pointers[buffer["name"]] for buffer in launch["buffers"]]
        scalars = [float("nan")] * len(launch["scalars"])
        arguments = Arguments(
            ctypes.sizeof(Arguments),
            (ctypes.c_int64 * len(sizes))(*sizes),
            len(sizes),
            (ctypes.c_double * len(scalars))(*scalars),
            len(scalars),
            (ctypes.c_uint64 * len(buffers))(*buffers),
            len(buffers),
            pointers["workspace"],
            2**40,
        )
        workspace = ctypes.c_int64()
        self.call("tessera_kernel_workspace_bytes", kernel, None, ctypes.byref(arguments), ctypes.byref(workspace))
        self.record()
        self.call("tessera_kernel_launch", kernel, None, None, ctypes.byref(arguments))
        return self.record(), workspace.value


def expected(resolved, pointers):
    """What the stand-in would record of a launcher that follows the page."""
    lines, maps = [], set()
    for step in resolved["steps"]:
        texts = []
        for kind, value in step["parameters"]:
            if kind == "tensor_map":
                texts.append("map")
                of = resolved["maps"][value]
                dims, strides = (",".join(map(str, of[key])) for key in ("dims", "strides_bytes"))
                maps.add(f"map {pointers[of['buffer']]:#x} dims {dims} strides {strides}")
            else:
                texts.append(struct.pack(FORMS[kind], value).hex())
        lines.append("parameters " + " ".join(texts))
        lines.append(f"launch {step['entry']} grid {','.join(map(str, step['grid']))} stream 0")
    return lines, maps


def main():
    os.environ["TESSERA_CACHE_DIR"] = tempfile.mkdtemp()
    library = Library(sys.argv[1])
    library.driver.fake_cuda_record_parameters()
    num_maps = num_skipped = 0
    for op, fields, given in LAUNCHES:
        try:
            kernel = library.kernel(op, fields)
        except RuntimeError as error:
            if "libnvrtc" in str(error):
                print(f"skipped: {error}")
                return 77
            raise
        launch = json.loads(library.tessera.tessera_kernel_plan(kernel).decode())
        launch = launch.get("launch", launch)
        pointers = {buffer["name"]: (i + 1) << 32 for i, buffer in enumerate(launch["buffers"])}
        pointers["workspace"] = 1 << 44
        on_device = {"num_sms": 132} if any(size["name"] == "num_sms" for size in launch["sizes"]) else {}
        resolved = plan_reader.resolve(launch, {**on_device, **given}, {}, pointers)
        record, workspace = library.launch(kernel, launch, given, pointers)
        lines, maps = expected(resolved, pointers)
        assert [line for line in record if not line.startswith("map")] == lines, (op, given, record, lines)
        assert {line for line in record if line.startswith("map")} == maps, (op, given, record, maps)
        assert workspace == resolved["workspace"], (op, given, workspace, resolved["workspace"])
        num_maps += len(maps)
        num_skipped += len(launch["steps"]) - len(resolved["steps"])
        library.tessera.tessera_kernel_close(kernel)
    assert num_maps >= 8 and num_skipped >= 1, (num_maps, num_skipped)
    for text in ("1 +", "min(1)", "2 3", "ceil_div(1, 0)", "9223372036854775807 + 1", "unknown"):
        try:
            plan_reader.evaluate(text, {})
        except (ValueError, IndexError, OverflowError, KeyError):
            continue
        raise AssertionError(f"{text} is taken")
    print(f"{len(LAUNCHES)} launches as the page says them, {num_maps} tensor maps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
