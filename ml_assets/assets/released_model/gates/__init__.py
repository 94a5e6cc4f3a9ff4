"""The promotion gates: one file for each family of them, and one that decides by all."""
