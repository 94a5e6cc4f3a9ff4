"""What people look at: SVG drawings and the parts that pages are put together from."""
