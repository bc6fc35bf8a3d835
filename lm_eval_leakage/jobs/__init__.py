"""Carries out `lm-eval-leakage check`: one model in this process, or many models on one machine or several."""
