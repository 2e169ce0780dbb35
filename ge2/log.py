"""Loggers by topic: GE2_LOG=cache,select makes those print what they decide, to stderr."""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import TextIO

from . import config
from .errors import Invalid, near_matches

TOPICS = ("cache", "compile", "select", "fuse", "tune")


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to what is standard error now: whoever replaces it may have closed the old one."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """Keep no stream."""


def for_command_line() -> None:
    """Show warnings as the command line shows its own messages."""
    handler = _ToStderr()
    handler.setFormatter(logging.Formatter("ge2: warning: %(message)s"))
    handler.setLevel(logging.WARNING)
    logging.getLogger("ge2").handlers = [handler]


@cache
def topic(name: str) -> logging.Logger:
    """Return the logger of a topic: warnings always, information where GE2_LOG names it.

    Raises:
        Invalid: GE2_LOG names an unknown topic.
    """
    wanted = {part.strip() for part in config.get("GE2_LOG").split(",") if part.strip()}
    for other in sorted(wanted.difference(TOPICS)):
        raise Invalid("GE2_LOG has a bad value", found=repr(other), wanted=", ".join(TOPICS),
                      hint=near_matches(other, TOPICS))
    logger = logging.getLogger(f"ge2.{name}")
    if name in wanted:
        handler = _ToStderr()
        handler.setFormatter(logging.Formatter(f"ge2 {name}: %(message)s"))
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
    elif any(isinstance(handler, _ToStderr) for handler in logger.handlers):
        logger.handlers = []
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
    return logger
