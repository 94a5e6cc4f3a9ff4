"""The planner: what is due, why, and in which runs."""
