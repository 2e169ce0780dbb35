"""Tuning: measure the variants of a problem on this GPU, keep the evidence, choose the best."""
