"""Sends our requests to the run's model, and the model `hf-prefix-tree`."""
