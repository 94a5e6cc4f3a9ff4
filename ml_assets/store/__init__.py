"""Where state lies: snapshots, objects and checkpoints, on this machine, S3 or lakeFS."""
