"""The rows of a training step: memory-mapped arrays, and an order independent of the processes."""
