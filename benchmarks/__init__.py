"""Benchmarks that anyone can rerun: `python -m benchmarks.NAME --json`, one file each."""
