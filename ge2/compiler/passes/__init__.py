"""Graph rewrites: the pass manager, the passes, and the pipeline that lists them in order."""
