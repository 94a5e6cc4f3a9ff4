"""Which rows a step trains on: mapped arrays, and an order that knows no process."""
