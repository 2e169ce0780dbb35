"""Run the command line from a checkout: python cli.py run model.json."""

from ge2.__main__ import main

if __name__ == "__main__":
    main()
