"""Watching a search on stderr: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from typing import Any

import click

from ..tune.session import Result
from .output import Report, is_terminal, use_color

LINE_SECONDS = 5.0


class Progress:
    """Shows what the session tells.

    Args:
        report: quiet reports show nothing.
        problems, trials: how many there are at most, for the bar.
    """

    def __init__(self, report: Report, problems: int, trials: int) -> None:
        self._report = report
        self._problems, self._trials = problems, trials
        self._done = 0
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._label = ""
        self._said = 0.0
        self._bar: Any = None
        self._task: Any = None
        if is_terminal() and not report.quiet:
            self._open_bar()

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True, no_color=use_color() is False)
        self._bar = Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                        TextColumn("{task.fields[best]}"), TimeRemainingColumn(),
                        console=console, transient=True)
        self._task = self._bar.add_task("tuning", total=self._problems * self._trials, best="")
        self._bar.start()

    def __call__(self, event: str, numbers: dict[str, Any]) -> None:
        """Take one event; any thread."""
        with self._lock:
            getattr(self, f"_on_{event}", self._nothing)(numbers)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _nothing(self, numbers: dict[str, Any]) -> None:
        return

    def _on_start(self, numbers: dict[str, Any]) -> None:
        self._label = numbers["task"].label

    def _on_trial(self, numbers: dict[str, Any]) -> None:
        best, default = numbers["best_us"], numbers["default_us"]
        text = f"best {best:.2f} us" if best else ""
        if best and default:
            text += f" ({100 * (default / best - 1):+.1f} %)"
        record = numbers["record"]
        if not record.is_ok:
            self._report.detail(f"  {record.state}: {record.variant}: {record.reason}")
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=self._label[:40], best=text)
            return
        now = time.monotonic()
        if now - self._said >= LINE_SECONDS:
            self._said = now
            self._report.message(f"[{self._done}/{self._problems}] {self._label}: "
                                 f"{numbers['tried']} candidates, {text}{self._eta(now)}")

    def _eta(self, now: float) -> str:
        if not self._done:
            return ""
        left = (now - self._start) / self._done * (self._problems - self._done)
        return f", about {left:.0f} s left"

    def _on_warning(self, numbers: dict[str, Any]) -> None:
        self._say(f"ge2: warning: {numbers['text']}")

    def _on_end(self, numbers: dict[str, Any]) -> None:
        self._done += 1
        self._say(f"[{self._done}/{self._problems}] {summary_line(numbers['result'])}")
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done * self._trials)

    def _say(self, text: str) -> None:
        if self._report.quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            click.echo(text, err=True)


def summary_line(result: Result) -> str:
    """Return one line on a problem: how long, what is best, what it was."""
    label, outcome = result.task.label, result.outcome
    if outcome is None or outcome.decision is None:
        reason = result.error or (outcome.first_error if outcome else "") or "not reached"
        return f"{label}: no valid candidate; {' '.join(reason.split())[:200]}"
    found = outcome.decision
    if outcome.known and outcome.known == outcome.tried:
        return f"{label}: known, {found.variant} {found.time_us:.2f} us"
    change = ("the default stays" if found.variant == found.default else
              f"was {found.default_us:.2f} us ({100 * outcome.gain.value:+.1f} % "
              f"± {100 * outcome.gain.noise:.1f})")
    return (f"{label}: {outcome.seconds:.1f} s, best {found.variant} {found.time_us:.2f} us, "
            f"{change}")
