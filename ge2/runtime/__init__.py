"""Compiling, caching, memory and execution."""
