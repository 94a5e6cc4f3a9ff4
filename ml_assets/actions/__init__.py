"""One file for each user action. The command line parses and calls them."""
