"""A Kedro project with the graphs that benchmarks compare."""
