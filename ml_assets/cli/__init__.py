"""The command line: each command parses, calls one action, and prints."""
