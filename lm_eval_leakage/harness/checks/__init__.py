"""Checks before the model is loaded, for what would later end a run or make it wrong."""
