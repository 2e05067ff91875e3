"""The figures of docs/benchmarks.md: `make bench` prints them, ratios within one run."""
