"""The storage of all state: snapshots, objects and checkpoints, on this machine, S3 or lakeFS."""
