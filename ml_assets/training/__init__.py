"""The training program: torch, and nothing from above; torchrun starts it in processes of its own."""
