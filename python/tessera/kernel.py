"""Kernels of any operator: names of the plan to tensors and numbers, checked here in the caller's words."""

from __future__ import annotations

import sys

from . import _core, arrays, remembered
from .emulator import Emulator, Memory, emulator_for
from .errors import DeviceError, UsageError
from .jit import Jit, default_jit, fields_of, parsed, require_jit
from .values import real, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Union

    Device = Union[None, str, Emulator]
    """None or "gpu": the GPU where the tensors lie. "emulator": an Emulator of the kernel's target."""

_MAX_LAYOUTS = 1024  # of a kernel, whose shapes are remembered
_OF_EXPRESSIONS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_ +-*(),")
_FUNCTIONS = {"__builtins__": {}, "ceil_div": lambda a, b: -(-a // b), "min": min, "max": max}


class _Expression:
    """A number, or a text of the plan's grammar over sizes."""

    def __init__(self, text: str | int) -> None:
        self.name = ""  # of the one size that it is, or is `rest` more than
        self.rest = 0
        self.value = text if isinstance(text, int) else None
        if isinstance(text, int):
            return
        if not _OF_EXPRESSIONS.issuperset(text):
            raise UsageError(f"{text}: is no expression of a plan")
        name, _, rest = text.partition(" + ")
        if name.isidentifier() and (rest == "" or rest.isdigit()):
            self.name, self.rest = name, int(rest or 0)
        self._code = compile(text, "<plan>", "eval")
        self._names = [name for name in self._code.co_names if name not in _FUNCTIONS]

    def evaluate(self, sizes: dict[str, int]) -> int | None:
        """None where a size is unknown."""
        if self.value is not None:
            return self.value
        if not all(name in sizes for name in self._names):
            return None
        return eval(self._code, _FUNCTIONS, sizes)  # the plan's own text, of digits, names and six signs


class _Buffer:
    def __init__(self, index: int, spec: dict[str, Any]) -> None:
        self.index, self.name, self.role, self.dtype = index, spec["name"], spec["role"], spec["dtype"]
        self.is_optional = spec["is_optional"]
        self.shape = [_Expression(extent) for extent in spec["shape"]]
        self.strides = [_Expression(stride) for stride in spec["strides"]]


class Kernel:
    """Code for one operator and fields, ready to be bound to tensors: `tessera.Kernel("fmha", head_dim=128)`.

    Fields are those of the operator's page (docs/operators.md), spelled as flags; a hint (`batch=8`) steers the choice
    only. Found in a cache or compiled when the object is made. Raises UsageError, UnsupportedError, CompileError,
    IoError. Shared between threads as it likes.
    """

    def __init__(self, op: str, *, jit: Jit | None = None, **fields: Any) -> None:
        if not isinstance(op, str):
            raise UsageError(f"op = {op!r}: must be the name of an operator, like 'fmha'")
        self.jit = default_jit() if jit is None else require_jit(jit)
        self.op = op
        self.fields = fields
        self._core = _core.Kernel(self.jit._core, op, fields_of(fields))
        self.name: str = self._core.name
        """Of the kernel's entry, as profilers show it."""
        self.plan: dict[str, Any] = parsed(self._core.plan)
        """plan.json as a dict (docs/plan.md)."""
        launch = self.plan["launch"]
        self.arch: str = self.plan["arch"]
        self._sizes = {spec["name"]: i for i, spec in enumerate(launch["sizes"])}
        self._scalars = {spec["name"]: i for i, spec in enumerate(launch["scalars"])}
        self._buffers = {spec["name"]: _Buffer(i, spec) for i, spec in enumerate(launch["buffers"])}
        self._layouts: dict[tuple[Any, ...], _Layout] = {}
        self._defaults = [
            (spec["name"], _Expression(spec["default"])) for spec in launch["sizes"] if spec.get("default") is not None
        ]

    def __repr__(self) -> str:
        return f"<tessera.Kernel {self.name}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Kernel:
        """Nothing of it changes: a copy of a module that holds one shares it."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by operator and fields: it is found or compiled anew, by the default Jit of the process that loads it."""
        return _kernel_of, (self.op, self.fields)

    def prepare(self, device: Device = None) -> None:
        """Loads the code, so that launches allocate nothing and may be captured into a CUDA graph."""
        emulator = self._device(device)
        self._core.prepare(None if emulator is None else emulator._core)

    def bind(self, *, device: Device = None, workspace: Any = None, **arguments: Any) -> Launch:
        """A launch of these tensors, sizes and scalars, to be started any number of times.

        Names are the plan's. Sizes follow from the tensors' shapes and strides, as far as these say them; the rest is
        given (`window_size_left=128`) or has a default. Outputs that are not given are made, dense, in the library of
        the first tensor; optional outputs with the value True too. A workspace that is needed is made likewise.
        Raises UsageError where shapes, types or sizes do not fit each other.
        """
        return Launch(self, self._device(device), workspace, arguments)

    def __call__(
        self, *, device: Device = None, stream: int | None = None, workspace: Any = None, **arguments: Any
    ) -> dict[str, Any]:
        """`bind` and `launch` in one; the outputs by name. Tensors must live until the stream has come by."""
        emulator = self._device(device)
        if "jax" in sys.modules and any(arrays.is_of_jax(value) for value in arguments.values()):
            from . import jax

            return jax.call(self, emulator, stream, workspace, arguments)
        if emulator is not None:
            launch = Launch(self, emulator, workspace, arguments)
        else:
            launch = self._bound_before(workspace, arguments)
        launch.launch(stream)
        remembered.note(launch)
        return launch.outputs

    def _bound_before(self, workspace: Any, arguments: dict[str, Any]) -> Launch:
        """Tensors like those of an earlier call are not looked at again: only their addresses are new."""
        views: dict[str, arrays.View] = {}
        key: list[Any] = []
        for name, value in arguments.items():
            if value is None:
                continue
            if name in self._buffers and value is not True and value is not False:
                view = views[name] = arrays.view(name, value)
                key.append((name, view.shape, view.strides, view.dtype, view.ordinal, view.library, view.is_read_only))
            elif name in self._sizes:
                key.append((name, whole(name, value)))
            elif name in self._scalars:
                key.append((name, real(name, value)))
            else:
                key.append((name, value is True))  # an output that is wanted; the rest is refused
        like = self._layouts.get(layout := tuple(key))
        if like is not None:
            return like.launch(self, views, workspace)
        launch = Launch(self, None, workspace, arguments)
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
        self._layouts[layout] = _Layout(launch)
        return launch

    def _device(self, device: Device) -> Emulator | None:
        if device is None or device == "gpu":
            return None
        if device == "emulator":
            return emulator_for(self.jit, self.arch)
        if not isinstance(device, Emulator):
            raise UsageError(f"device = {device}: must be None, 'gpu', 'emulator' or a tessera.Emulator")
        if device.jit is not self.jit:
            raise UsageError("device: an Emulator of another Jit than the kernel's: make it with tessera.Emulator(jit=kernel.jit)")
        return device


def _kernel_of(op: str, fields: dict[str, Any]) -> Kernel:
    return Kernel(op, **fields)


class _Layout:
    """What a launch found out about tensors of its shapes, without the tensors."""

    __slots__ = ("core", "sizes", "made", "workspace_bytes", "written")

    def __init__(self, launch: Launch) -> None:
        self.core = launch._core.copy()
        self.sizes = launch.sizes
        self.made = launch._made_as
        self.workspace_bytes = launch._workspace_bytes
        made = {name for name, _, _ in self.made}
        self.written = [name for name in launch.outputs if name not in made]

    def launch(self, kernel: Kernel, views: dict[str, arrays.View], workspace: Any) -> Launch:
        launch = Launch.__new__(Launch)
        launch.kernel, launch._emulator, launch._memory = kernel, None, {}
        launch._core, launch._views, launch._made = self.core.copy(), views, []
        launch.sizes, launch._made_as, launch._workspace_bytes = self.sizes, self.made, self.workspace_bytes
        launch.outputs = {name: views[name].tensor for name in self.written}
        first = next(iter(views.values()))
        for name, shape, dtype in self.made:
            tensor = launch.outputs[name] = arrays.empty_like(first, shape, dtype)
            launch._made.append(tensor)
            views[name] = arrays.view(name, tensor)
        for name, view in views.items():
            launch._core.set_buffer(kernel._buffers[name].index, view.address)
        launch._make_workspace(workspace, self.workspace_bytes)
        return launch


def _place_of(view: arrays.View) -> str:
    return "the host" if view.ordinal is None else f"GPU {view.ordinal}"


class Launch:
    """Tensors and numbers of one launch; made by `Kernel.bind`."""

    def __init__(self, kernel: Kernel, emulator: Emulator | None, workspace: Any, arguments: dict[str, Any]) -> None:
        self.kernel = kernel
        self._emulator = emulator
        self._core = _core.Arguments(kernel._core)
        self._views: dict[str, arrays.View] = {}
        self._memory: dict[str, Memory] = {}
        self._squeezed = False
        self._kept: frozenset[str] = frozenset()  # outputs that the emulator does not poison: what is not written counts
        self._workspace: arrays.View | Memory | None = None
        self._made: list[Any] = []  # outputs and workspace that nobody gave
        self._made_as: list[tuple[str, tuple[int, ...], str]] = []  # name, shape and type of the outputs among them
        self.outputs: dict[str, Any] = {}
        """The tensors that the kernel writes, by name."""
        sizes = self._take(arguments)
        self._infer(sizes)
        self._complete(sizes)
        self._make_outputs(sizes, {name for name, value in arguments.items() if value is True})
        self._set_strides(sizes)
        for name, view in self._views.items():
            self._place(kernel._buffers[name], view)
        self.sizes: dict[str, int] = sizes
        """Every size with its value, defaults included."""
        self._workspace_bytes: int = self._core.workspace_bytes(None if emulator is None else emulator._core)
        self._make_workspace(workspace, self._workspace_bytes)

    def launch(self, stream: int | None = None, **tensors: Any) -> None:
        """Starts the kernel on a stream (an address, `torch.cuda.Stream.cuda_stream`; None: the one that the tensors'
        library works on) and does not wait for it; in the emulator it is done when this returns.

        tensors: others in the place of bound ones, of the same shape, strides and type.
        """
        if stream is not None and whole("stream", stream) < 0:
            raise UsageError(f"stream = {stream}: must be an address")
        views = {name: self._view_like_bound(name, tensor) for name, tensor in tensors.items()}
        for name, view in views.items():
            self._replace(name, view)
        if self._emulator is not None:
            self._emulate(self._emulator)
            return
        first = next(iter(self._views.values()), None)
        if first is not None and first.library == "torch":
            self._launch_of_torch(first.ordinal or 0, stream)
        else:
            self._core.launch(None, arrays.current_stream(first) if stream is None else stream)

    def taking(self, *names: str) -> Callable[..., None]:
        """A function of these tensors, by position, which launches with them in the place of the bound ones: the least
        time of the host between tensors and a kernel.

            step = kernel.bind(q=q, k=k, v=v, o=o).taking("q", "k", "v", "o")
            step(q, k, v, o)                        # stream=... as of launch

        Tensors of PyTorch 2.10 and later are read without a call of Python (0.1 us each); others as `launch` does.
        """
        for name in names:
            if name not in self._views:
                raise UsageError(f"{name} is not bound; bound are {', '.join(self._views)}")
        if len(set(names)) < len(names):
            raise UsageError(f"taking {', '.join(names)}: each once")
        prepared = self._prepared(names)

        def step(*tensors: Any, stream: int | None = None) -> None:
            if prepared is not None and prepared.launch(tensors, stream):
                return
            if len(tensors) != len(names):
                raise UsageError(f"{len(tensors)} tensors given, {len(names)} expected: {', '.join(names)}")
            self.launch(stream, **dict(zip(names, tensors)))

        return step

    def _prepared(self, names: Iterable[str], with_workspace: bool = False) -> _core.Prepared | None:
        """None in the emulator, and where tensors of these names are not all told by DLPack's codes and on one GPU."""
        views = [self._views[name] for name in names]
        ordinals = {view.ordinal for view in self._views.values()}
        ordinal = ordinals.pop() if len(ordinals) == 1 else None
        if self._emulator is not None or ordinal is None:
            return None
        slots = []
        for name, view in zip(names, views):
            code = arrays.dlpack_code(view.dtype)
            if code is None:
                return None
            slots.append((self.kernel._buffers[name].index, *code, view.shape, view.strides))
        return _core.Prepared(self._core, ordinal, slots, with_workspace)

    # Binding, in the order of __init__.

    def _take(self, arguments: dict[str, Any]) -> dict[str, int]:
        kernel = self.kernel
        sizes: dict[str, int] = {}
        for name, value in arguments.items():
            if value is None:
                continue
            if name in kernel._sizes:
                sizes[name] = whole(name, value)
                self._core.set_size(kernel._sizes[name], sizes[name])
            elif name in kernel._scalars:
                self._core.set_scalar(kernel._scalars[name], real(name, value))
            elif name not in kernel._buffers:
                known = ", ".join([*kernel._buffers, *kernel._sizes, *kernel._scalars])
                raise UsageError(f"{kernel.op} takes no '{name}' with these fields; it takes {known}")
            elif value is not True and value is not False:
                self._add(kernel._buffers[name], arrays.view(name, value))
        return sizes

    def _add(self, buffer: _Buffer, view: arrays.View) -> None:
        missing = len(buffer.shape) - len(view.shape)
        if missing == 1 and self._has_default(buffer.shape[0]):
            view.shape, view.strides = (1, *view.shape), (0, *view.strides)
            self._squeezed = True
        elif missing != 0:
            raise UsageError(f"{buffer.name}: {len(view.shape)} dimensions given, {len(buffer.shape)} expected")
        are_bits = view.dtype in ("u8", "u16") and arrays.bytes_of(view.dtype) == arrays.bytes_of(buffer.dtype)
        if view.dtype != buffer.dtype and not are_bits:
            raise UsageError(f"{buffer.name}: elements of type {view.dtype} given, {buffer.dtype} expected")
        if self._emulator is None and view.ordinal is None:
            raise UsageError(f"{buffer.name} lies on the host: give tensors on a GPU, or device='emulator'")
        for name, other in self._views.items():
            if self._emulator is None and other.ordinal != view.ordinal:
                raise UsageError(f"{buffer.name} lies on {_place_of(view)}, {name} on {_place_of(other)}: one GPU is expected")
            break
        if buffer.role != "input" and view.is_read_only:
            raise UsageError(f"{buffer.name} is read-only: the kernel writes it")
        self._views[buffer.name] = view
        if buffer.role != "input":
            self.outputs[buffer.name] = view.tensor

    def _has_default(self, extent: _Expression) -> bool:
        is_name = extent.name != "" and extent.rest == 0
        return is_name and any(extent.name == name for name, _ in self.kernel._defaults)

    def _infer(self, sizes: dict[str, int]) -> None:
        said_by: dict[str, str] = {name: "the call" for name in sizes}
        for name, view in self._views.items():
            for expression, extent in zip(self.kernel._buffers[name].shape, view.shape):
                size = expression.name
                if size not in self.kernel._sizes:
                    continue
                value = extent - expression.rest
                if size not in sizes:
                    sizes[size], said_by[size] = value, name
                    self._core.set_size(self.kernel._sizes[size], value)
                elif sizes[size] != value:
                    raise UsageError(f"{size} is {sizes[size]} by {said_by[size]} and {value} by {name}")

    def _complete(self, sizes: dict[str, int]) -> None:
        for name, view in self._views.items():
            if self._emulator is not None or 0 in view.shape:  # strides of what has no elements are anything
                continue
            for expression, extent, stride in zip(self.kernel._buffers[name].strides, view.shape, view.strides):
                size = expression.name
                if size in self.kernel._sizes and expression.rest == 0 and extent > 1 and size not in sizes:
                    sizes[size] = stride
                    self._core.set_size(self.kernel._sizes[size], stride)
        for name, expression in self.kernel._defaults:
            if name not in sizes:
                value = expression.evaluate(sizes)
                if value is not None:
                    sizes[name] = value
        for name, view in self._views.items():
            shape = [expression.evaluate(sizes) for expression in self.kernel._buffers[name].shape]
            if any(expected is not None and expected != extent for expected, extent in zip(shape, view.shape)):
                text = ", ".join("?" if extent is None else str(extent) for extent in shape)
                raise UsageError(f"{name}: shape {list(view.shape)} given, [{text}] expected")

    def _make_outputs(self, sizes: dict[str, int], wanted: set[str]) -> None:
        for name, buffer in self.kernel._buffers.items():
            if buffer.role == "input" or name in self._views or (buffer.is_optional and name not in wanted):
                continue
            if buffer.role == "in_out":
                raise UsageError(f"{name} is missing: the kernel adds to what it holds")
            known = [expression.evaluate(sizes) for expression in buffer.shape]
            shape = [extent for extent in known if extent is not None]
            if len(shape) < len(known) or not self._views:
                raise UsageError(f"{name} cannot be made: its shape follows from sizes that are not given")
            first = next(iter(self._views.values()))
            made = tuple(shape[1:] if self._squeezed and self._has_default(buffer.shape[0]) else shape)
            self._made_as.append((name, made, buffer.dtype))
            self._made.append(arrays.empty_like(first, made, buffer.dtype))
            self._add(buffer, arrays.view(name, self._made[-1]))

    def _set_strides(self, sizes: dict[str, int]) -> None:
        """Of tensors as they lie; copies in the emulator are dense."""
        for name, view in self._views.items():
            if 0 in view.shape:
                continue
            strides = arrays.dense_strides(view.shape) if self._emulator is not None else view.strides
            for expression, extent, stride in zip(self.kernel._buffers[name].strides, view.shape, strides):
                expected = expression.evaluate(sizes)
                if extent > 1 and expected is not None and stride != expected:
                    raise UsageError(f"{name}: strides {list(view.strides)} (elements) are none that this kernel takes")

    def _place(self, buffer: _Buffer, view: arrays.View) -> None:
        if self._emulator is None:
            self._core.set_buffer(buffer.index, view.address)
            return
        memory = self._memory.get(buffer.name)
        if memory is None:
            memory = self._memory[buffer.name] = Memory(self._emulator, view.nbytes)
        self._core.set_buffer(buffer.index, memory.address)

    def _make_workspace(self, workspace: Any, needed: int) -> None:
        if needed == 0:
            return
        if workspace is not None and self._emulator is None:
            self._workspace = given = arrays.view("workspace", workspace)
            ordinal = next((view.ordinal for view in self._views.values()), given.ordinal)
            if given.ordinal is None or given.ordinal != ordinal or not given.is_dense() or given.is_read_only:
                raise UsageError(f"workspace: dense memory of GPU {ordinal} is expected, which may be written; it lies on {_place_of(given)}")
            self._core.set_workspace(self._workspace.address, self._workspace.nbytes)
            return
        if self._emulator is not None:
            self._workspace = Memory(self._emulator, needed)
            self._core.set_workspace(self._workspace.address, needed)
            return
        first = next(iter(self._views.values()))
        self._made.append(arrays.empty_like(first, (needed,), "u8"))
        self._workspace = arrays.view("workspace", self._made[-1])
        self._core.set_workspace(self._workspace.address, needed)

    # Launching.

    def _launch_of_torch(self, ordinal: int, stream: int | None) -> None:
        torch = sys.modules["torch"]
        if stream is None:
            stream = torch.cuda.current_stream(ordinal).cuda_stream
        elif self._made:  # its allocator hands memory on in the order of another stream
            other = torch.cuda.ExternalStream(stream, device=ordinal)
            for tensor in self._made:
                tensor.record_stream(other)
        if torch.cuda.current_device() != ordinal:
            with torch.cuda.device(ordinal):
                self._core.launch(None, stream)
            return
        try:
            self._core.launch(None, stream)
        except DeviceError as error:
            if not error.message.startswith("no CUDA context is current"):
                raise
            torch.cuda.current_stream(ordinal).query()  # a new thread: the runtime makes the context current
            self._core.launch(None, stream)

    def _view_like_bound(self, name: str, tensor: Any) -> arrays.View:
        bound = self._views.get(name)
        if bound is None:
            raise UsageError(f"{name} is not bound; bound are {', '.join(self._views)}")
        view = arrays.view(name, tensor)
        if len(view.shape) < len(bound.shape):
            view.shape, view.strides = (1, *view.shape), (0, *view.strides)
        same = view.shape == bound.shape and view.dtype == bound.dtype and view.ordinal == bound.ordinal
        strides = zip(view.shape, view.strides, bound.strides)
        if not same or (self._emulator is None and any(extent > 1 and new != old for extent, new, old in strides)):
            raise UsageError(
                f"{name}: {view.dtype} {list(view.shape)} with strides {list(view.strides)} on {_place_of(view)} given, bound was "
                f"{bound.dtype} {list(bound.shape)} with strides {list(bound.strides)} on {_place_of(bound)}: bind it anew"
            )
        if self.kernel._buffers[name].role != "input" and view.is_read_only:
            raise UsageError(f"{name} is read-only: the kernel writes it")
        return view

    def _replace(self, name: str, view: arrays.View) -> None:
        buffer = self.kernel._buffers[name]
        self._views[name] = view
        if buffer.role != "input":
            self.outputs[name] = view.tensor
        self._place(buffer, view)

    def _emulate(self, emulator: Emulator) -> None:
        copies = {name: arrays.HostCopy(name, view) for name, view in self._views.items() if view.nbytes > 0}
        with emulator._alone():
            for name, copy in copies.items():
                memory = self._memory[name]
                if self.kernel._buffers[name].role == "output" and name not in self._kept:
                    emulator._core.poison(memory.address, 0xFF, memory.nbytes)
                else:
                    emulator._core.upload(memory.address, copy.address, memory.nbytes)
            self._core.launch(emulator._core, 0)
            emulator.take_findings()
            for name, copy in copies.items():
                if self.kernel._buffers[name].role != "input":
                    emulator._core.download(copy.address, self._memory[name].address, self._memory[name].nbytes)
                    copy.write_back()
