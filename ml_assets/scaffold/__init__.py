"""A new pipeline from a table: its folder, spec, feature function and contract."""
