"""The use of machines, storage and transfer, and its cost."""
