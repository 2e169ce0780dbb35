"""The ge2 command: lazily loaded subcommands, exit codes, one-line errors.

Starting the command imports click and nothing of ge2 but its error types.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import click

from . import __version__
from .errors import Ge2Error, Invalid, near_matches

EXIT_CODES = (
    (0, "success"),
    (1, "a failed run, or outputs that differ from what was expected"),
    (2, "wrong usage, or a bad GE2_* variable"),
    (3, "a bad model, weights or input file"),
    (4, "no GPU, or an environment that cannot run what was asked"),
    (5, "no kernel or no valid candidate for a problem"),
    (130, "interrupted"),
)

# name -> (module, attribute, short help); a command's module is imported when it is used.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Run a model on its sample, on files or on random inputs."),
    "tune": ("tune", "tune", "Measure kernels on this GPU and remember the best."),
    "explain": ("explain", "explain", "Show what the compiler does with a model, and why."),
    "check": ("check", "check", "Validate model files; needs no GPU."),
    "import": ("import_model", "import_model", "Write an ONNX model as a model file."),
    "ops": ("ops", "ops", "List the operators that model files may use."),
    "kernels": ("kernels", "kernels", "Look at kernels, compile, emulate, compare and write them."),
    "lab": ("lab", "lab", "Look at execution primitives, measure them, and generate kernels."),
    "probe": ("probe", "probe", "Measure how this GPU answers: bandwidths, latencies, rates."),
    "doctor": ("doctor", "doctor", "Examine the environment and say what to mend."),
    "cache": ("cache", "cache", "Look after the cache of compiled kernels."),
    "env": ("env", "env", "List every GE2_* variable, its value and its source."),
    "schema": ("schema", "schema", "Print the JSON Schema of model files."),
    "completion": ("completion", "completion", "Print the shell completion script."),
}

_EPILOG = "Exit codes:\n\n" + "\n\n".join(f"{code}: {text}" for code, text in EXIT_CODES)


class LazyGroup(click.Group):
    """A group that imports a subcommand's module when the subcommand is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a subcommand."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        from .log import for_command_line

        for_command_line()
        module, attribute, _ = entry
        command = getattr(importlib.import_module(f"ge2.commands.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]
                        ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; an unknown one gets near matches."""
        name = args[0] if args else ""
        if name not in COMMANDS and not name.startswith("-"):
            hint = near_matches(name, COMMANDS) or f"the commands are {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the exit codes and how to see tracebacks."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in EXIT_CODES])
        with formatter.section("Environment"):
            formatter.write_dl([("GE2_DEBUG=1", "show tracebacks"), ("NO_COLOR=1", "no colours"),
                                ("ge2 env", "lists every GE2_* variable")])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ge2")
def cli() -> None:
    """Run model graphs on NVIDIA GPUs with kernels compiled at run time.

    Results go to standard output, progress and messages to standard error.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the documented code."""
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    A command that fails writes the error where --json says, as an object with `ok` and `error`.
    """
    given = list(sys.argv[1:] if args is None else args)
    debug = os.environ.get("GE2_DEBUG", "0") not in ("", "0")
    _open_streams()
    try:
        _check_environment()
        result: Any = cli.main(args=given, prog_name="ge2", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        return _failed(given, error, 130, "interrupted")
    except click.ClickException as error:
        return _failed(given, error, error.exit_code, error.format_message(), show=error.show)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _discard_output()
        return 0
    except (Ge2Error, MemoryError, OSError) as error:
        code = error.exit_code if isinstance(error, Ge2Error) else 1
        _failed(given, error, code, str(error) or "out of memory",
                show=(lambda: None) if debug else None)
        if debug:
            raise
        return code


def _failed(args: Sequence[str], error: BaseException, code: int, message: str, *,
            show: Callable[[], None] | None = None) -> int:
    """Report a failure as text and where --json says; return the exit code."""
    try:
        if show is not None:
            show()
        else:
            click.echo(f"ge2: {message}", err=True)
        if any(arg.partition("=")[0] == "--json" for arg in args):
            from .commands.output import write_failure

            write_failure(args, error, code, message)
    except OSError:  # nobody reads it; the exit code tells
        _discard_output()
    return code


def _open_streams() -> None:
    """Put nothing in the place of closed streams, whose numbers another file would get."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, _nothing())


def _discard_output() -> None:
    """Forget what is still to be written to streams that take nothing any more."""
    sys.stdout, sys.stderr = _nothing(), _nothing()


def _nothing() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - outlives the caller


def _check_environment() -> None:
    """Warn about misspelt GE2_* variables and refuse bad values."""
    if not any(name.startswith("GE2_") for name in os.environ):
        return
    from . import config
    from .log import topic

    for warning in config.unknown_variables():
        click.echo(f"ge2: warning: {warning}", err=True)
    try:
        for name in config.VARIABLES:
            config.get(name)
        topic("cache")
    except Invalid as error:
        raise click.UsageError(str(error)) from None
