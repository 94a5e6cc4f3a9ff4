"""What runs by itself: one planner, and the sensors, schedules and alerts that ask it."""
