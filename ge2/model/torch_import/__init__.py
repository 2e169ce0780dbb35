"""Importing PyTorch modules through torch.export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import EnvironmentUnusable

if TYPE_CHECKING:
    from ..model import Model


def from_torch(module: Any, example_inputs: Sequence[Any], *,
               dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None,
               backend: str | None = None, device: int | None = None) -> Model:
    """Return a torch.nn.Module as a model; weights on the host are shared, not copied.

    Args:
        module: in the mode that it shall run in; call eval() first.
        example_inputs: one tensor per argument of forward.
        dynamic_shapes: as torch.export takes it, by argument name or position; a name may stand in
            the place of a torch.export.Dim: {"x": {0: "batch"}}.
        backend, device: as ge2.load.

    Raises:
        EnvironmentUnusable: torch is missing.
        ModelError: the module uses what ge2 cannot express; lists all of it.
    """
    try:
        import torch  # noqa: F401 - only whether it is there
    except ImportError:
        raise EnvironmentUnusable("from_torch needs PyTorch", hint="pip install torch") from None
    from ..model import Model
    from .importer import import_module

    made = import_module(module, tuple(example_inputs), dynamic_shapes)
    model = Model(made.graph, backend=backend, device=device)
    model.notes = made.notes
    return model
