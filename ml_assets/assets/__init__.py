"""The walk, in the words of the lineage: a folder for each kind of asset."""
