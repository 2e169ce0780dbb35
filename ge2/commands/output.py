"""What commands print: results on stdout, messages on stderr, JSON where asked for."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Report:
    """One command's output.

    Args:
        json_target: None, "-" for stdout (all text then goes to stderr) or a file.
        quiet: print no messages.
        verbose: print details too.
    """

    def __init__(self, json_target: str | None = None, *, quiet: bool = False,
                 verbose: bool = False) -> None:
        self.json_target = json_target
        self.quiet = quiet
        self.verbose = verbose
        self.data: dict[str, Any] = {}

    def line(self, text: str = "") -> None:
        """Print a line of the result."""
        click.echo(text, err=self.json_target == "-", color=use_color())

    def message(self, text: str) -> None:
        """Print a message about progress, unless quiet."""
        if not self.quiet:
            click.echo(text, err=True, color=use_color())

    def detail(self, text: str) -> None:
        """Print a message that only -v shows."""
        if self.verbose:
            self.message(text)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[object]], *,
              right: frozenset[int] = frozenset()) -> None:
        """Print aligned columns; those in right are right-aligned."""
        for row in format_table(header, rows, right=right):
            self.line(row)

    def finish(self) -> None:
        """Write the collected data where --json says."""
        if self.json_target is None:
            return
        try:
            _write_json(self.data, self.json_target)
        except OSError as error:
            if self.json_target == "-":
                raise
            raise click.UsageError(f"--json {self.json_target}: {error.strerror}") from None


def _write_json(data: Any, target: str) -> None:
    if target == "-":
        click.echo(to_json(data, getattr(sys.stdout, "encoding", None) or "utf-8"))
    else:
        Path(target).write_text(to_json(data) + "\n", encoding="utf-8")


def json_place(context: click.Context, option: click.Parameter, target: str | None) -> str | None:
    """Return the value of --json: standard output, or a file that can be written."""
    place: str | None = target if target == "-" else writable_file(context, option, target)
    return place


def writable_file(context: click.Context, option: click.Parameter, target: Any) -> Any:
    """Return an option's value where a file can be written there.

    Asked before the work, whose result would be lost otherwise.

    Raises:
        click.BadParameter: it is a folder, its folder is missing or closed to this user, it is "-",
            or another option writes there, too.
    """
    if target is None:
        return target
    path = Path(target)
    folder = path.parent
    others = context.meta.setdefault("ge2.written", {})
    other = others.setdefault(path.resolve(), option.name)
    if str(target) == "-":
        why = "standard output takes only --json -; wanted a file"
    elif other != option.name and not path.is_char_device():
        why = "another option writes there, too"
    elif path.is_dir():
        why = "it is a folder; wanted the name of a file"
    elif not folder.is_dir():
        why = f"there is no folder {folder}; make it first"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        why = f"{path if path.exists() else folder} is closed to this user; wanted another place"
    else:
        return target
    raise click.BadParameter(f"{target} cannot be written: {why}")


def writable_folder(_context: click.Context, _option: click.Parameter, target: str) -> str:
    """Return an option's value where files can be written into a folder, which may be made first.

    Raises:
        click.BadParameter: a file is in its place, or it is closed to this user.
    """
    existing = next((p for p in (Path(target), *Path(target).parents) if p.exists()), Path())
    if not existing.is_dir():
        raise click.BadParameter(f"{target} cannot be written: {existing} is no folder")
    if not os.access(existing, os.W_OK):
        raise click.BadParameter(f"{target} cannot be written: {existing} is closed to this user; "
                                 "wanted another place")
    return target


def report_options(function: _Function) -> _Function:
    """Add --json, -q and -v to a command; read them with Report(json_target, ...)."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Print details."),
        click.option("-q", "--quiet", is_flag=True, help="Print results only."),
        click.option("--json", "json_target", metavar="FILE|-", callback=json_place,
                     help="Write the result as JSON to a file, or to stdout with -."),
    ):
        function = option(function)
    return function


def write_failure(args: Sequence[str], error: BaseException, code: int, message: str) -> None:
    """Write why a command failed where its --json says.

    Args:
        args: the command line; it may be one that click has refused.
        error: what ended the command; its found, wanted and hint are written where it has them.
        code: the exit code.
        message: for the user.
    """
    given = [after if arg == "--json" else arg.partition("=")[2]
             for arg, after in zip(args, [*args[1:], ""], strict=True)
             if arg.partition("=")[0] == "--json"]
    target = given[-1]
    details = {key: value for key in ("found", "wanted", "hint", "log", "source_path")
               if (value := getattr(error, key, None)) not in (None, "")}
    data = {"ok": False, "exit_code": code, "error": {
        "kind": type(error).__name__, "message": message, **details}}
    if target == "-":
        _write_json(data, target)
    elif target:
        with contextlib.suppress(OSError):  # the message names what is wrong with the file
            _write_json(data, target)


class Number(click.FloatRange):
    """A bound of errors or times; NaN, which nothing exceeds, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None
                ) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is no number", param, ctx)
        return number


def use_color() -> bool | None:
    """Return False under NO_COLOR, else None: click decides by the terminal."""
    return False if os.environ.get("NO_COLOR") else None


def good(text: str) -> str:
    """Return text in green."""
    return click.style(text, fg="green")


def bad(text: str) -> str:
    """Return text in red."""
    return click.style(text, fg="red", bold=True)


def warn(text: str) -> str:
    """Return text in yellow."""
    return click.style(text, fg="yellow")


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]], *,
                 right: frozenset[int] = frozenset()) -> list[str]:
    """Return aligned lines, header first; the last column is not padded."""
    body = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(click.unstyle(line[i])) for line in [list(header), *body])
              for i in range(len(header))]

    def layout(cells: Sequence[str]) -> str:
        parts = []
        for i, cell in enumerate(cells):
            pad = " " * (widths[i] - len(click.unstyle(cell)))
            parts.append(pad + cell if i in right else cell + pad)
        return "  ".join(parts).rstrip()

    return [click.style(layout(header), bold=True), *(layout(line) for line in body)]


def to_json(value: Any, encoding: str = "utf-8") -> str:
    """Return strict JSON; NaN and infinities become strings, arrays lists.

    Characters are escaped only where the encoding lacks one of them, such as parts of file names
    that are no text.
    """
    plain = _plain(value)
    text = json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(plain, indent=2, allow_nan=False)
    return text


def human_bytes(count: float) -> str:
    """Return a byte count such as 1.5 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: "1 node", "2 nodes"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def human_time(seconds: float) -> str:
    """Return a duration such as 12.3 us."""
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def is_terminal() -> bool:
    """Return whether progress can be drawn over itself."""
    return sys.stderr.isatty()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)
