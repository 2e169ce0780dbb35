"""ge2 runs model graphs on NVIDIA GPUs with kernels compiled at run time for exactly that GPU.

Importing the package touches no device and loads neither cupy nor NumPy: names are resolved
at first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes longer to import than all else here
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "GE2_API_VERSION": "ge2.contract",
    "load": "ge2.model",
    "from_torch": "ge2.model.torch_import",
    "Model": "ge2.model",
    "Ge2Error": "ge2.errors",
    "register": "ge2.compiler.kernels.registry",
    "check_gradient": "ge2.compiler.opdefs.user_rows",
    "row_operator": "ge2.compiler.opdefs.user_rows",
    "last_error": "ge2.launch_table",
    "query_capability": "ge2.launch_table",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'ge2' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
