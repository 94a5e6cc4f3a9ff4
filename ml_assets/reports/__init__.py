"""The building blocks of pages: SVG drawings, templates and their parts."""
