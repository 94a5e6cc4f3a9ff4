"""The training program: torch, and nothing from above. torchrun starts it in its own processes."""
