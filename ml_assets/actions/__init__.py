"""What people do: one file for each action; the command line parses and calls them."""
