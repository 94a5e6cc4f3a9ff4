"""House-keeping: what is kept and what is deleted, and why."""
