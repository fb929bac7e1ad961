"""What a launch reads and writes: PyTorch's CPU memory, copied to the emulated device before it and back after it.

A tensor's whole storage goes, once, with the bounds that it has: one byte beyond is out of bounds, and a view may reach
what its storage has. Copied, not mapped, because tensors are then left as they are: memory of NumPy and of files
works, a process may fork, and the runs of `--schedule all` are compared by what comes back. A storage comes back only if the
launch changed it, so one that cannot be written is no trouble.
"""

from __future__ import annotations

import gc
import sys

from . import guest

_LEAST_ADDRESS = 1 << 32  # smaller numbers in an int64 tensor are not looked up as addresses
_MOST_POINTERS = 1 << 16


class DeviceMemory:
    """Of one launch. Use it as a context; call `copy_back` after a launch that did not fail."""

    def __init__(self) -> None:
        self._copies = {}  # by the storage's address: the storage's bytes, the device's address, what was sent

    def __enter__(self) -> DeviceMemory:
        return self

    def __exit__(self, *_) -> None:
        for _, pointer, _ in self._copies.values():
            guest.free(pointer)

    def pointer(self, value) -> int:
        """The device's address of an argument: None, a number as it is, a tensor or what wraps one."""
        if value is None:
            return 0
        if isinstance(value, int):
            return value
        tensor = value
        while not hasattr(tensor, "untyped_storage") and hasattr(tensor, "base"):
            tensor = tensor.base  # triton.reinterpret
        if not hasattr(tensor, "untyped_storage") or tensor.device.type != "cpu" or value.data_ptr() == 0:
            return value.data_ptr()
        return self._copy_of(tensor) + value.data_ptr() - tensor.untyped_storage().data_ptr()

    def _copy_of(self, tensor) -> int:
        storage = tensor.untyped_storage()
        known = self._copies.get(storage.data_ptr())
        if known is not None and known[0].numel() >= storage.nbytes():
            return known[1]
        import torch

        sent = host = torch.empty(0, dtype=torch.uint8).set_(storage)
        pointer = guest.allocate(storage.nbytes())
        self._copies[storage.data_ptr()] = host, pointer, sent
        if tensor.dtype in (torch.int64, getattr(torch, "uint64", torch.int64)) and host.numel() <= 8 * _MOST_POINTERS:
            sent = self._with_device_pointers(host)
            self._copies[storage.data_ptr()] = host, pointer, sent
        guest.copy_to_device(pointer, sent.data_ptr(), sent.numel())
        return pointer

    def _with_device_pointers(self, host):
        """A table of addresses (a grouped product's) leads to copies of the tensors that have them."""
        import torch

        if host.numel() % 8 or host.data_ptr() % 8:
            return host
        words = host.view(torch.int64)
        wanted = {value for value in words.tolist() if value >= _LEAST_ADDRESS}
        if not wanted:
            return host
        found = {}
        for candidate in gc.get_objects():
            if not issubclass(type(candidate), torch.Tensor) or candidate.device.type != "cpu":
                continue
            if candidate.layout is not torch.strided or type(candidate).__name__ == "FakeTensor":
                continue
            storage = candidate.untyped_storage()
            start, size = storage.data_ptr(), storage.nbytes()
            for value in [value for value in wanted if start <= value < start + size]:
                found[value] = self._copy_of(candidate) + value - start
                wanted.discard(value)
            if not wanted:
                break
        if not found:
            return host
        return torch.tensor([found.get(value, value) for value in words.tolist()], dtype=torch.int64).view(torch.uint8)

    def copy_back(self) -> None:
        import torch

        for host, pointer, sent in self._copies.values():
            made = torch.empty_like(host)
            guest.copy_to_host(made.data_ptr(), pointer, made.numel())
            if torch.equal(made, sent):
                continue
            host.copy_(made if sent is host else torch.where(made == sent, host, made))


def empty(size: int):
    """Memory for the kernel alone, as a tensor of PyTorch."""
    torch = sys.modules["torch"]
    return torch.empty(size, dtype=torch.uint8)
