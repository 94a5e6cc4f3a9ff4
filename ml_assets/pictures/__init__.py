"""What people look at: SVG drawings, the pictures of the asset pages, and the report page.

Pure functions from records to text: equal records give equal pictures, and nothing is loaded.
"""
