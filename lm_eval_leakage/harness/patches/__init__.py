"""Everything that reaches into private parts of lm_eval, or changes them: one module for each part.

docs/harness_seams.md is the table of them, made from `seams.py`: what is touched, why, which test notices a change,
and what happens with another version of lm_eval. This room imports nothing else of `harness/`; what our tasks and
models do there is handed in as functions.
"""
