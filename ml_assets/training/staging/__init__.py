"""A pod's first process: it fetches what the program needs, runs it, hands over what it made."""
