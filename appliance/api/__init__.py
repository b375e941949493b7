"""The HTTP surface: wire formats, routes, and how answers and errors leave."""
