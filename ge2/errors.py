"""Every exception that ge2 raises; one per status code, plus those of the compiler and the tools.

A message says what failed, what was found, what was wanted and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class Ge2Error(Exception):
    """Base of all ge2 errors.

    Attributes:
        exit_code: what the command line exits with when this error ends a command.
    """

    exit_code = 1

    def __init__(self, message: str, *, argument: str = "", found: object = None,
                 wanted: object = None, hint: str = "") -> None:
        parts = [message]
        if found is not None:
            parts.append(f"found {found}")
        if wanted is not None:
            parts.append(f"wanted {wanted}")
        text = "; ".join(parts)
        if hint.startswith("did you mean"):
            hint = f"D{hint[1:]}"
        super().__init__(f"{text.removesuffix('.')}. {hint}" if hint else text)
        self.argument = argument
        self.found = found
        self.wanted = wanted
        self.hint = hint


class Invalid(Ge2Error, ValueError):
    """A value is out of range or the combination makes no sense."""

    exit_code = 2


class MissingInput(Ge2Error, ValueError):
    """A required buffer was not given."""


class DtypeMismatch(Ge2Error, TypeError):
    """A buffer's dtype is not what the operator or kernel takes."""


class ShapeMismatch(Ge2Error, ValueError):
    """Shapes do not fit together."""


class StrideMismatch(Ge2Error, ValueError):
    """A stride or leading dimension is not usable."""


class LayoutMismatch(Ge2Error, ValueError):
    """A memory layout is not supported."""


class DeviceMismatch(Ge2Error, ValueError):
    """A buffer lives on the wrong device or on the host."""


class Unsupported(Ge2Error, NotImplementedError):
    """The request is valid but this device or kernel cannot serve it."""


class CompileFailed(Ge2Error, RuntimeError):
    """A kernel did not compile; carries the log and the path of the saved source."""

    def __init__(self, message: str, *, log: str = "", source_path: str = "", **kw: object) -> None:
        super().__init__(message, **kw)  # type: ignore[arg-type]
        self.log = log
        self.source_path = source_path


class LaunchFailed(Ge2Error, RuntimeError):
    """The driver refused a launch, a kernel faulted, or NumPy could not compute a node."""


class OutOfMemory(Ge2Error, MemoryError):
    """Device memory ran out."""


class ApiVersionMismatch(Ge2Error, RuntimeError):
    """A cubin, plug-in, bundle or params block speaks another contract version."""


class KernelSpecError(Ge2Error, ValueError):
    """A kernel template's metadata is wrong; names file and line."""


class NoKernelError(Ge2Error, LookupError):
    """No kernel has this name, or none can serve a problem: lists every candidate's refusal."""

    exit_code = 5


class GraphError(Ge2Error, ValueError):
    """A graph breaks a rule of the IR."""

    exit_code = 3


class PassError(Ge2Error, RuntimeError):
    """A pass failed or broke the graph; names the pass and those that ran before it."""


class ModelError(Ge2Error, ValueError):
    """A model file, its weights or an input file is wrong; names file and JSON path."""

    exit_code = 3


class EnvironmentUnusable(Ge2Error, RuntimeError):
    """No GPU, no cupy, no compiler: says what to install."""

    exit_code = 4


def near_matches(name: str, known: Iterable[str], limit: int = 3) -> str:
    """Return "did you mean A, B?" for the known names closest to name, or an empty string.

    Names that name begins come first, then similar ones; case does not count.
    """
    folded: dict[str, str] = {}
    for other in known:
        folded.setdefault(other.casefold(), other)
    wanted = name.casefold()
    longer = sorted((key for key in folded if key.startswith(wanted)), key=len)
    similar = get_close_matches(wanted, list(folded), n=limit, cutoff=0.6)
    close = dict.fromkeys([*(longer if len(wanted) > 2 else ()), *similar])
    found = [folded[key] for key in close][:limit]
    return f"did you mean {', '.join(found)}?" if found else ""
