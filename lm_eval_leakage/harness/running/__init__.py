"""Runs tasks of lm_eval and audits in this process, on chosen questions, saved as `lm_eval run` saves them."""
