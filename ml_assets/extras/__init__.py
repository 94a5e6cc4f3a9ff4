"""What a first pipeline does not need: each extra is loaded when a spec or a command asks."""
