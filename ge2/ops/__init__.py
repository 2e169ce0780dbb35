"""What users call with buffers."""
