"""Networks: one interface, our families, a team's own. families.py says which one is built."""
