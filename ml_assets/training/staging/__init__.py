"""A pod's first process: it fetches the program's inputs, runs it, and hands over its outputs."""
