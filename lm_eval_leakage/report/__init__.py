"""Renders annotations and leaderboards as self-contained HTML pages, and plots of them; only `Plot.save` writes a
file."""
