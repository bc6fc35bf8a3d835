"""Tasks of the questions that are not flagged, for plain `lm_eval`."""
