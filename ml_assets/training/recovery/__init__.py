"""What a process does about the death of others, and about its own."""
