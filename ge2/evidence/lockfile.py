"""Lock files: the variants of one model, pinned, beside the model and in version control."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from .. import paths
from ..errors import ModelError
from .record import SCHEMA
from .records import EvidenceError


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """One pinned choice; as in Decision."""

    problem: str
    shape: str
    variant: str
    numerics: str
    cubin: str = ""
    sources: str = ""
    tuned: bool = False
    margin: float = 0.0
    date: float = 0.0


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock file.

    Attributes:
        ge2_tuning: schema. device: key of the device that it was made for.
        driver, nvrtc, ge2: versions then. choices: one per distinct problem of the model.
    """

    ge2_tuning: int
    device: str
    driver: str
    nvrtc: str
    ge2: str
    choices: tuple[Pinned, ...]

    def by_problem(self) -> dict[str, Pinned]:
        """Return the choices by problem key."""
        return {choice.problem: choice for choice in self.choices}


def lock_path(model: Path) -> Path:
    """Return the lock file of a model file: model.json -> model.tuning.json."""
    return model.with_suffix(".tuning.json")


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock file, sorted, so that version control shows what changed.

    Raises:
        EvidenceError: it cannot be written.
    """
    plain = msgspec.to_builtins(lock)
    plain["choices"] = sorted(plain["choices"], key=lambda c: (c["shape"], c["problem"]))
    try:
        paths.write_atomic(path, (json.dumps(plain, indent=1) + "\n").encode())
    except OSError as error:
        raise EvidenceError(f"{path} cannot be written", found=error.strerror) from error


def read_lock(path: Path) -> Lock:
    """Return a lock file's content.

    Raises:
        ModelError: there is none, or it is no lock file of this version.
    """
    try:
        lock = msgspec.json.decode(path.read_bytes(), type=Lock)
    except FileNotFoundError:
        raise ModelError(f"there is no lock file {path}",
                         hint="ge2 tune pin MODEL writes it") from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is no tuning lock file", found=str(error)) from error
    if lock.ge2_tuning > SCHEMA:
        raise ModelError(f"{path} comes from a newer ge2", found=f"schema {lock.ge2_tuning}",
                         wanted=f"at most {SCHEMA}", hint="Update ge2")
    return lock
