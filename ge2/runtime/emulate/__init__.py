"""The emulate backend: rendered kernels run on the host, with detectors.

How to use it:

- `run_problem(variant, problem, arrays)` binds a kernel variant to a problem, allocates exactly
  guarded buffers, runs all its launch records and returns the outputs as NumPy arrays.
- `Memory()` holds buffers; `launch(record, args, memory=...)` runs one launch record whose address
  holes are filled with host addresses (`fill_args` does that), and raises EmulationError with
  every finding: kind, kernel, source line, block, thread, address.
- `launch(..., source=text)` runs hand-written CUDA text instead of the record's template.
- `seed=N` runs threads in a random order, the same for the same seed.
- `bank_conflicts=True` counts the shared-memory wavefronts of each access site in the Report.

A kernel is compiled by g++ or clang++ (GE2_CXX chooses) and kept by content in the cache folder.
docs/emulation.md says what is modelled.
"""

from __future__ import annotations

from .compiler import CompileOptions, compile, find_compiler
from .launcher import DEFAULT_STEP_LIMIT, fill_args, launch
from .memory import Buffer, Memory
from .problems import Edit, run_problem
from .report import BankSite, EmulationError, Finding, Frame, Report
from .tensor_map import encode_tensor_map

__all__ = [
    "DEFAULT_STEP_LIMIT",
    "BankSite",
    "Buffer",
    "CompileOptions",
    "Edit",
    "EmulationError",
    "Finding",
    "Frame",
    "Memory",
    "Report",
    "compile",
    "encode_tensor_map",
    "fill_args",
    "find_compiler",
    "launch",
    "run_problem",
]
