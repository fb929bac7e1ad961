"""Our kernels from Python, by the names of their plans: what named_launch.cpp is for."""

import ctypes
import struct

import torch


class Kernel:
    """One kernel: Kernel(library, "fmha", "head_dim=128,kv_layout=paged,page_size=16")."""

    def __init__(self, library, op, selectors):
        self.library = library
        for name in ("open", "workspace", "launch"):
            getattr(library, f"tessera_bench_{name}").restype = ctypes.c_char_p
        self.handle, name = ctypes.c_void_p(), ctypes.c_char_p()
        self.check(library.tessera_bench_open(op.encode(), selectors.encode(), ctypes.byref(self.handle), ctypes.byref(name)))
        self.name = name.value.decode()

    def check(self, error):
        if error is not None:
            raise RuntimeError(error.decode())

    def bind(self, **values):
        """A launch on the current stream with these sizes (int), buffers (tensors) and scalars (float); it keeps the tensors, and has
        a workspace of its own."""
        def bits(value):
            if isinstance(value, torch.Tensor):
                return value.data_ptr()
            return struct.unpack("q", struct.pack("d", value))[0] if isinstance(value, float) else value

        def packed(of):
            names = (ctypes.c_char_p * len(of))(*(name.encode() for name in of))
            return names, (ctypes.c_int64 * len(of))(*(bits(value) for value in of.values())), len(of)

        bytes_ = ctypes.c_int64()
        self.check(self.library.tessera_bench_workspace(self.handle, *packed(values), ctypes.byref(bytes_)))
        if bytes_.value > 0:
            values["workspace"] = torch.empty(bytes_.value, dtype=torch.uint8, device="cuda")
            values["workspace_bytes"] = bytes_.value
        arguments = packed(values)

        def launch():
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            self.check(self.library.tessera_bench_launch(self.handle, stream, *arguments))

        launch.keeps = values
        return launch
