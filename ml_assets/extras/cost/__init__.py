"""What machines, storage and transfer were used for, and what that costs."""
