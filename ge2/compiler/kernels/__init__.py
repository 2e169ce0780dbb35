"""Kernel sources as the compiler sees them: metadata, registry, rendering, selection."""
