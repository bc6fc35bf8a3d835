"""Sends our requests to the run's model, and the models that we add to lm_eval."""
