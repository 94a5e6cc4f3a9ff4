"""What a pod runs: it fetches what the program needs, runs it, and hands over what it made."""
