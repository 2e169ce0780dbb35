"""What users hold: a loaded model that can be called, prepared and explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import config
from ..compiler.ir.nodes import Graph, TensorType
from ..errors import Invalid, ModelError
from .backend import choose_backend
from .data import check_feeds, concrete_shape, free_symbols
from .document import read_model_file
from .loader import GraphLoader
from .sample import Sample

if TYPE_CHECKING:
    from ..compiler.passes.pass_manager import Optimized
    from ..runtime.cpu import CpuProgram
    from ..runtime.executor import Executable
    from ..runtime.tuned import TunedChooser
    from .explain import Explanation

_SIGNATURES_KEPT = 4096


class Model:
    """A graph that can be called.

    Attributes:
        graph: the graph as loaded, before any pass.
        outputs: names of the outputs that a call returns.
        sample: the model file's sample, or None.
        backend: cuda, cpu or emulate.
        state: current value of each state buffer; zeros before the first call.
        notes: what an import decided, for the user.
        tuning: "on", "off" or "pinned"; None takes GE2_TUNE. Set before the first call.
        memory_budget: bytes that intermediates may take, None for no limit. Set before the first
            call.
        path: the model file, None for a graph made in Python.
    """

    def __init__(self, graph: Graph, *, backend: str | None = None, device: int | None = None,
                 sample: Sample | None = None, outputs: Sequence[str] | None = None,
                 tuning: str | None = None, path: Path | None = None) -> None:
        self.graph = graph
        self.outputs = list(outputs if outputs is not None else graph.outputs)
        for value in graph.aliases:
            if value not in graph.outputs:
                graph.outputs.append(value)
        self.sample = sample
        self.backend = choose_backend(backend).name
        self.device = int(config.get("GE2_DEVICE")) if device is None else device
        self.state: dict[str, Any] = {}
        self.notes: tuple[str, ...] = ()
        self.tuning = tuning
        self.memory_budget: int | None = None
        self.path = path
        self._chooser: TunedChooser | None = None
        self._optimized: Optimized | None = None
        self._executable: Executable | None = None
        self._program: CpuProgram | None = None
        self._checked: set[tuple[Any, ...]] = set()

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Declared type of each input that a call takes; states are not among them."""
        states = set(self.graph.aliases.values())
        return {n: self.graph.types[n] for n in self.graph.inputs if n not in states}

    @property
    def symbols(self) -> list[str]:
        """Named dimensions of the inputs."""
        return free_symbols(self.inputs.values())

    @property
    def optimized(self) -> Optimized:
        """The graph after the passes, with the trace of what each did."""
        if self._optimized is None:
            from ..compiler.passes.pipeline import optimize

            self._optimized = optimize(self.graph)
        return self._optimized

    @property
    def chooser(self) -> TunedChooser:
        """What picks the kernel of each problem: evidence, the lock file, or rules alone."""
        if self._chooser is None:
            from ..evidence.lockfile import lock_path
            from ..runtime.tuned import TunedChooser

            self._chooser = TunedChooser(self.tuning, lock_path(self.path) if self.path else None)
        return self._chooser

    @property
    def executable(self) -> Executable:
        """The compiled form for this model's backend and device."""
        if self._executable is None:
            from ..runtime.executor import Executable

            self._executable = Executable(self.optimized.graph, backend=self.backend,
                                          device=self.device, choose=self.chooser,
                                          memory_budget=self.memory_budget)
        return self._executable

    @property
    def program(self) -> CpuProgram:
        """The form that the cpu backend runs."""
        if self._program is None:
            from ..compiler.passes.pipeline import optimize
            from ..runtime.cpu import CpuProgram

            self._program = CpuProgram(optimize(self.graph, backend="cpu").graph)
        return self._program

    def __call__(self, *args: Any, stream: Any = None, **feeds: Any) -> dict[str, Any]:
        """Run the model.

        Args:
            args: inputs in declared order.
            stream: where to launch; default: the caller's current stream.
            feeds: inputs by name. NumPy, CuPy or torch arrays of the declared dtype and shape.

        Returns:
            The outputs by name, as the kind of array that was given.

        Raises:
            ModelError: an input is unknown, missing, or of another dtype, rank or shape.
        """
        return self.run(self._named(args, feeds), stream=stream)

    def run(self, feeds: Mapping[str, Any], *, stream: Any = None) -> dict[str, Any]:
        """Run the model on inputs by name; as a call, for names that are no identifiers."""
        # A call like an earlier one has been checked: 5 us instead of 60.
        signature = tuple((name, a.dtype, a.shape) for name, a in feeds.items()
                          if hasattr(a, "dtype"))
        if signature not in self._checked or len(signature) != len(feeds):
            check_feeds(self.inputs, feeds)
            if len(self._checked) < _SIGNATURES_KEPT:
                self._checked.add(signature)
        full = {**feeds, **self._states(feeds)} if self.graph.aliases else feeds
        results = self._run(full, stream)
        for value, state in self.graph.aliases.items():
            self.state[state] = results[value]
        return {name: results[name] for name in self.outputs}

    def prepare(self, **symbols: int) -> Model:
        """Compile, load and allocate for given sizes, so that the first call does not.

        Args:
            symbols: a value for every named dimension.

        Raises:
            Invalid: a dimension is unknown or has no value.
        """
        unknown = [name for name in symbols if name not in self.symbols]
        missing = [name for name in self.symbols if name not in symbols]
        if unknown or missing:
            raise Invalid("prepare needs a value for each named dimension",
                          found=", ".join(symbols) or "none",
                          wanted=", ".join(self.symbols) or "none")
        if self.backend == "cpu":
            self.program  # noqa: B018 - built when first asked for
        else:
            self.executable.prepare(
                {name: self.graph.types[name].concrete(symbols) for name in self.graph.inputs})
        return self

    def explain(self, *, arch: str | None = None, symbols: Mapping[str, int] | None = None
                ) -> Explanation:
        """Return what the compiler does with this model: passes, kernels, rejected candidates.

        Args:
            arch: plan for this architecture ("sm_90a") instead of the device; needs no GPU.
            symbols: values of the named dimensions; those not given count as 1.
        """
        from .explain import explain

        return explain(self, arch=arch, symbols=dict(symbols or {}))

    def reset_state(self) -> None:
        """Forget the state: the next call starts from zeros."""
        self.state.clear()

    def reference(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of the unoptimised graph computed in float64 with NumPy."""
        from ..runtime.cpu import run_graph

        check_feeds(self.inputs, feeds)
        full = {**feeds, **self._states(feeds)}
        results = run_graph(self.graph, full, dtype="f64")
        return {name: results[name] for name in self.outputs}

    def _named(self, args: Sequence[Any], feeds: dict[str, Any]) -> dict[str, Any]:
        names = list(self.inputs)
        if len(args) > len(names):
            raise ModelError("too many inputs", found=len(args), wanted=", ".join(names))
        named = dict(zip(names, args, strict=False))
        twice = [name for name in named if name in feeds]
        if twice:
            raise ModelError(f"input {twice[0]!r} is given by position and by name")
        return {**named, **feeds}

    def _states(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        from ..contract import numpy_dtype

        for state in self.graph.aliases.values():
            if state not in self.state:
                kind = self.graph.types[state]
                like = next(iter(feeds.values()), None)
                zeros = np.zeros(concrete_shape(kind, {}), numpy_dtype(kind.dtype))
                self.state[state] = zeros if like is None else _same_kind(zeros, like)
        return self.state

    def _run(self, feeds: Mapping[str, Any], stream: Any) -> dict[str, Any]:
        if self.backend != "cpu":
            results: dict[str, Any] = self.executable.run(dict(feeds), stream=stream)
            return results
        like = next(iter(feeds.values()), None)
        host = {name: to_numpy(array) for name, array in feeds.items()}
        return {name: _same_kind(array, like) for name, array in self.program.run(host).items()}


def load(path: str | Path, *, backend: str | None = None, device: int | None = None,
         tuning: str | None = None) -> Model:
    """Load a model file.

    Args:
        path: model.json, or an .onnx file (needs the onnx package).
        backend: cuda, cpu or emulate; default GE2_BACKEND, else cuda where a GPU and cupy are.
        device: CUDA device index; default GE2_DEVICE.
        tuning: "on" (use evidence), "off", or "pinned" (the lock file beside the model); default
            GE2_TUNE.

    Raises:
        ModelError: the file, its weights or its sample break a rule; names file and JSON path.
    """
    path = Path(path)
    if path.suffix == ".onnx":
        from .onnx_import import read_onnx

        imported = read_onnx(path)
        model = Model(imported.graph, backend=backend, device=device, tuning=tuning, path=path)
        model.notes = imported.notes
        return model
    file = read_model_file(path)
    graph = GraphLoader(file, path).load()
    model = Model(graph, backend=backend, device=device, outputs=file.outputs, tuning=tuning,
                  path=path)
    if file.sample is not None:
        model.sample = Sample(path, file.sample, model.inputs, model.outputs)
        model.sample.check()
    return model


def to_numpy(array: Any) -> Any:
    """Return a NumPy, CuPy or torch array as a NumPy array."""
    if hasattr(array, "get"):
        return array.get()
    if hasattr(array, "detach"):
        return array.detach().cpu().numpy()
    return np.asarray(array)


def _same_kind(array: Any, like: Any) -> Any:
    """Return a NumPy array as the kind of array that like is, on its device."""
    module = type(like).__module__.split(".")[0]
    if module == "cupy":
        import cupy

        return cupy.asarray(array)
    if module == "torch":
        import torch

        return torch.from_numpy(array).to(like.device)
    return array
