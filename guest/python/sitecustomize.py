"""What Python does first under `tessera emulate -- python3 ...`, by the folder in PYTHONPATH.

cuda.bindings (cuda-python 13) has a static CUDA runtime inside, without names to find its functions by. Its Cython modules
hand each other those functions as capsules, by name: here each is replaced by one with the emulated GPU's function of
that name, between the import of the module that gives them and that of the one that takes them. The driver's API
needs nothing. A sitecustomize of the user's own runs afterwards.
"""

import ctypes
import importlib.machinery
import importlib.util
import os
import sys

_GIVERS = tuple(
    name + threads
    for name in ("cuda.bindings._internal.runtime", "cuda.bindings._bindings.cyruntime")  # the latter in 13.0
    for threads in ("", "_ptds")
) + ("cuda.bindings._bindings.cynvrtc",)
_kept = []  # names of capsules live as long as these


def _redirect(module):
    """_cudaMalloc, with the type that Cython checks, becomes cudaMalloc of libtessera_guest.so."""
    emulated = ctypes.CDLL(None)
    if not hasattr(emulated, "tessera_guest_named"):
        return
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    functions = getattr(module, "__pyx_capi__", {})
    for name, capsule in list(functions.items()):
        if not name.startswith("_cuda") or not hasattr(emulated, name[1:]):
            continue
        kind = ctypes.create_string_buffer(api.PyCapsule_GetName(capsule))
        _kept.append(kind)
        address = ctypes.cast(getattr(emulated, name[1:]), ctypes.c_void_p)
        functions[name] = api.PyCapsule_New(address, ctypes.cast(kind, ctypes.c_char_p), None)
    # In the place of machine code the PTX of the same compile (guest/nvrtc.cpp), where NVRTC is asked by its handle.
    for code, text in (("_nvrtcGetCUBIN", "_nvrtcGetPTX"), ("_nvrtcGetCUBINSize", "_nvrtcGetPTXSize")):
        if code in functions and text in functions:
            functions[code] = functions[text]


class _Finder:
    """Lets the other finders find the module, and redirects it when it has been loaded."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in _GIVERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_redirect(module):
            execute(module)
            _redirect(module)

        spec.loader.exec_module = execute_and_redirect
        return spec


def _run_next():
    here = os.path.dirname(os.path.abspath(__file__))
    others = [place for place in sys.path if os.path.abspath(place or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _Finder)
_run_next()
