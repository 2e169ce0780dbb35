"""Measured facts: timing, records, device profiles, cost model."""
