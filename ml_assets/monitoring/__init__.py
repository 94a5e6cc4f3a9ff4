"""Whether new data is still what a release was trained on: pure statistics, frozen records."""
