"""Renders annotations and leaderboards as self-contained HTML pages; reads and writes no files."""
