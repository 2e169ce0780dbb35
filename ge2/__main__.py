"""The ge2 command, and python -m ge2."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported is no traceback either."""
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
