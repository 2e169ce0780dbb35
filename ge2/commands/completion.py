"""ge2 completion: the script that makes a shell complete commands, options and files."""

from __future__ import annotations

import click

from .output import Report, report_options


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@report_options
def completion(shell: str, json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  eval "$(ge2 completion bash)"      in ~/.bashrc
    zsh:   eval "$(ge2 completion zsh)"       in ~/.zshrc
    fish:  ge2 completion fish > ~/.config/fish/completions/ge2.fish
    """
    from click.shell_completion import get_completion_class

    from ..cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "ge2", "_GE2_COMPLETE").source()
    report = Report(json_target, quiet=quiet, verbose=verbose)
    report.line(script)
    report.data = {"shell": shell, "script": script}
    report.finish()
