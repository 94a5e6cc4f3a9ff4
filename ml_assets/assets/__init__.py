"""The walk, named as in the lineage: a folder for each kind of asset."""
