"""Networks: one interface, our families, a team's own. ``families`` chooses the one to build."""
