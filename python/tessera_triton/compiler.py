"""Triton's NVIDIA compiler, which stops at PTX: that is what the emulator runs."""

from __future__ import annotations

import triton.backends.compiler as _base

from . import cuda_names, guest


def stop_at_ptx() -> None:
    """What Triton calls a cubin is the PTX's text from now on; no ptxas is called. The cache keeps them apart."""
    from triton.backends.nvidia.compiler import CUDABackend

    if getattr(CUDABackend, "is_tessera", False):
        return
    add_stages, hash_of = CUDABackend.add_stages, CUDABackend.hash

    def add_stages_to_ptx(self, stages, options, *others):
        add_stages(self, stages, options, *others)
        stages["cubin"] = lambda ptx, metadata: ptx.encode()

    CUDABackend.add_stages = add_stages_to_ptx
    CUDABackend.hash = lambda self: hash_of(self) + "-tessera"
    CUDABackend.is_tessera = True


class EmulatedBackend(_base.BaseBackend):
    """Compiles nothing: the target is "cuda", whose backend is NVIDIA's. Triton asks each package for one."""

    @staticmethod
    def supports_target(target):
        return False

    def hash(self):
        return "tessera"

    def parse_options(self, options):
        raise NotImplementedError

    def add_stages(self, stages, options, *others):
        raise NotImplementedError

    def load_dialects(self, context):
        raise NotImplementedError

    def get_module_map(self):
        raise NotImplementedError


if guest.is_loaded():
    stop_at_ptx()
    cuda_names.take_over()
