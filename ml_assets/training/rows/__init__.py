"""The rows that a step trains on: mapped arrays, and an order that knows no process."""
