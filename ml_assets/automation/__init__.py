"""Automation: one planner, and the sensors, schedules and alerts that use it."""
