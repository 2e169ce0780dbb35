"""Side-by-side timings and the one-call GPU check; not part of the installed package."""
