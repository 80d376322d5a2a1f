"""Benchmarks: each is a file with `NAME` and `run(quick)`, and each result is a ratio to a peer in the same run."""
