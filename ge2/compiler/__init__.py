"""The graph compiler: IR, operator definitions, passes, kernel selection."""
