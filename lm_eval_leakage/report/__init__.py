"""Annotations and leaderboards as HTML pages, each one file on its own; nothing here reads or writes."""
