"""Hand-written test kernels: run a text in the kernel language on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ge2.launch.record import KernelSource, LaunchRecord, TensorMapSpec, args_dtype
from ge2.runtime import emulate


@dataclass
class Case:
    """A kernel text, its launch, and its arguments.

    Attributes:
        text: CUDA text with `struct Args` and an entry named "kernel".
        inputs: arrays that the kernel may only read, by Args member.
        outputs: (shape, dtype) of arrays that it writes, by Args member.
        scalars: other Args members: (NumPy dtype, value).
        maps: tensor maps by Args member: (name of the array, dims, byte strides, box, swizzle).
        smem: bytes of shared memory that the kernel uses; the alignment slack is added.
    """

    text: str
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    outputs: Mapping[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    scalars: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    maps: Mapping[str, tuple[str, tuple, tuple, tuple, int]] = field(default_factory=dict)
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    cluster: tuple[int, int, int] = (1, 1, 1)
    smem: int = 0
    zeroed: tuple[str, ...] = ()

    def run(self, text: str | None = None, **options: Any) -> dict[str, np.ndarray]:
        """Run the text (or a changed one) and return the outputs; raises what launch() raises."""
        outputs, _ = self.report(text, **options)
        return outputs

    def report(self, text: str | None = None,
               **options: Any) -> tuple[dict[str, np.ndarray], emulate.Report]:
        """Like run(), with the launch's report."""
        memory = emulate.Memory()
        buffers = {}
        for name, array in self.inputs.items():
            buffers[name] = memory.allocate(array.nbytes, name, writable=False, initialised=True)
            memory.bytes_of(buffers[name])[:] = np.ascontiguousarray(array).view(np.uint8).ravel()
        for name, (shape, dtype) in self.outputs.items():
            nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
            buffers[name] = memory.allocate(nbytes, name, initialised=name in self.zeroed)
            if name in self.zeroed:
                memory.bytes_of(buffers[name])[:] = 0
        args = self._args({name: buffer.address for name, buffer in buffers.items()})
        record = LaunchRecord(KernelSource("test", (), "kernel"), self.grid, self.block, args, (),
                              smem=self.smem + 1024 if self.smem else 0, cluster=self.cluster)
        report = emulate.launch(record, args, memory=memory, source=text or self.text, **options)
        results = {name: memory.bytes_of(buffers[name]).view(dtype).reshape(shape).copy()
                   for name, (shape, dtype) in self.outputs.items()}
        return results, report

    def _args(self, addresses: Mapping[str, int]) -> bytes:
        pointers = [(name, "u8") for name in (*self.inputs, *self.outputs)]
        scalars = [(name, dtype) for name, (dtype, _) in self.scalars.items()]
        # Tensor maps come first in Args: they are 64-byte aligned.
        size = 128 * len(self.maps)
        block = np.zeros((), args_dtype(*pointers, *scalars))
        for name, address in addresses.items():
            block[name] = address
        for name, (_, value) in self.scalars.items():
            block[name] = value
        parts = []
        for array, dims, strides, box, swizzle in self.maps.values():
            dtype = {2: "f16", 4: "f32", 1: "u8"}[self._itemsize(array)]
            spec = TensorMapSpec(0, 0, 0, dtype, dims, strides, box, swizzle)
            parts.append(emulate.encode_tensor_map(spec, addresses[array]))
        data = b"".join(parts) + block.tobytes()
        return data.ljust(-(-len(data) // 64) * 64, b"\0") if size else data

    def _itemsize(self, array: str) -> int:
        if array in self.inputs:
            return self.inputs[array].itemsize
        return np.dtype(self.outputs[array][1]).itemsize


def faults(case: Case, text: str, **options: Any) -> frozenset[str]:
    """Return the kinds of findings that a text gives; empty when it runs clean."""
    try:
        case.run(text, **options)
    except emulate.EmulationError as error:
        return error.kinds
    return frozenset()
