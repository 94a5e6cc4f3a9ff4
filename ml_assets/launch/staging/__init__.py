"""The launcher's side of a session whose pods share no disk with it: through the object store."""
