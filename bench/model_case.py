"""One encoder at one batch for bench.models: ge2's models, torch's, and how far off they are."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ge2.evidence.measure import Candidate

from .minilm import build, sentences

LENGTH = 128
FORMS: Mapping[str, tuple[str, str]] = {  # ge2's models: element type, how f32 is multiplied
    "f16": ("f16", "default"), "f32": ("f32", "ieee"), "x3": ("f32", "x3")}
SECTIONS: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "f16": (("f16",), (1, 32, 256)), "f32": (("f32", "x3"), (1, 32, 256))}
MODES: Mapping[str, tuple[str, str]] = {  # peer -> torch.compile's mode captured, and called
    "compile": ("default", "default"),
    "max-autotune": ("max-autotune-no-cudagraphs", "max-autotune")}
REGIMES = ("captured", "called")

Feeds = tuple[Any, Any]
Call = Callable[[], Any]


class Case:
    """One element type and batch.

    Args:
        folder: with the weights.
        section: f16 or f32.
        batch: sentences.
        device: cuda, or cpu to check only.
        masked: whether torch is told of padding.
    """

    def __init__(self, folder: Path, section: str, batch: int, device: str = "cuda",
                 masked: bool = True) -> None:
        import torch

        from .minilm_torch import Encoder

        torch._dynamo.reset()  # else the case before counts towards dynamo's limit
        self.folder, self.section, self.batch, self.device = folder, section, batch, device
        self.dtype = {"f16": torch.float16, "f32": torch.float32}[section]
        config = json.loads((folder / "config.json").read_text())
        self.ragged, self.full = (
            self._tensors(*sentences(config, batch, LENGTH, ragged=ragged and masked))
            for ragged in (True, False))
        self.module = Encoder(folder, self.dtype, masked).to(device)
        self.models = {name: build(folder, *FORMS[name]).model(backend=device)
                       for name in SECTIONS[section][0]}
        for model in self.models.values():
            model.prepare(batch=batch, length=LENGTH)
        self.peers: dict[str, dict[str, Call]] = {regime: {} for regime in REGIMES}
        self.refused: dict[str, str] = {}
        self.compile_s: dict[str, float] = {}

    def _tensors(self, *arrays: Any) -> Feeds:
        import torch

        ids, mask = (torch.from_numpy(array).to(self.device) for array in arrays)
        return ids, mask

    def add_peers(self, without: Sequence[str], regimes: Sequence[str], limit_s: float) -> None:
        """Make torch eager and what torch.compile takes less than limit_s for."""
        for regime in regimes:
            self.peers[regime]["eager"] = self.module
        for name, modes in MODES.items():
            if name in without:
                continue
            made: dict[str, Any] = {}
            for regime in regimes:
                mode = modes[REGIMES.index(regime)]
                if mode not in made:
                    made[mode] = self._compiled(f"{name} {regime}", mode, limit_s)
                if made[mode] is not None:
                    self.peers[regime][name] = made[mode]

    def _compiled(self, label: str, mode: str, limit_s: float) -> Any:
        import torch

        start = time.perf_counter()
        try:
            with time_limit(limit_s):
                call = torch.compile(self.module, mode=mode, dynamic=False)
                for _ in range(3):  # graphs of its own are made in the second call
                    call(*self.full)
                _wait(self.device)
        except Exception as error:  # the compiler fails in many ways; ge2's figures must not
            late = time.perf_counter() - start >= limit_s  # the compiler may have wrapped the error
            reason = f"took more than {limit_s:g} s" if late else f"{type(error).__name__}: {error}"
            self.refused[label] = reason[:200]
            return None
        self.compile_s[label] = time.perf_counter() - start
        return call

    def wanted(self, feeds: Feeds) -> Any:
        """Return the vectors in float64."""
        from .minilm_torch import reference

        return reference(self.folder, self.dtype, *feeds)

    def ours(self, name: str, feeds: Feeds) -> Any:
        """Return ge2's vectors; on a GPU written into memory full of NaN."""
        import torch

        named = dict(zip(("ids", "mask"), feeds, strict=True))
        model = self.models[name]
        if self.device == "cpu":
            return model.run(named)["embedding"]
        width = self.module.words.weight.shape[1]
        out = torch.full((self.batch, width), math.nan, dtype=self.dtype, device=self.device)
        model.executable.run(named, outputs={"embedding": out})
        _wait(self.device)
        return out

    def check(self) -> dict[str, float]:
        """Return the largest difference of each from the float64 forward; some padding, and none.
        """
        errors: dict[str, float] = {}
        for feeds in (self.ragged, self.full):
            wanted = self.wanted(feeds)

            def note(name: str, found: Any, wanted: Any = wanted) -> None:
                largest = float((found.double() - wanted).abs().max())
                earlier = errors.get(name, 0.0)
                errors[name] = largest if math.isnan(largest) else max(largest, earlier)

            for name in self.models:
                note(name, self.ours(name, feeds))
            for regime, peers in self.peers.items():
                for name, call in peers.items():
                    note(f"{name} {regime}", call(*feeds))
        return errors

    def candidates(self, regime: str) -> dict[str, Candidate]:
        """Return ge2's models and the peers on sentences without padding."""
        found = {f"ge2 {name}": self._captured(name) if regime == "captured" else
                 self._called(lambda m=model: m(*self.full))
                 for name, model in self.models.items()}
        for name, call in self.peers[regime].items():
            found[name] = self._called(lambda c=call: c(*self.full), regime == "captured")
        return found

    def _captured(self, name: str) -> Candidate:
        import torch

        named = dict(zip(("ids", "mask"), self.full, strict=True))
        width = self.module.words.weight.shape[1]
        out = torch.empty((self.batch, width), dtype=self.dtype, device=self.device)
        run = self.models[name].executable.run
        return Candidate([lambda stream: run(named, stream=stream, outputs={"embedding": out})])

    @staticmethod
    def _called(call: Call, capture: bool = False) -> Candidate:
        import torch

        streams: dict[int, Any] = {}

        def enqueue(stream: int) -> None:
            if stream not in streams:
                streams[stream] = torch.cuda.ExternalStream(stream)
            with torch.cuda.stream(streams[stream]):
                call()

        return Candidate([enqueue], capture=capture)


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread after some seconds."""
    def stop(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
