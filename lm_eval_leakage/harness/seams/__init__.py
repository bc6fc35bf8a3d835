"""All patches of lm_eval and all uses of its private parts, one module per part.

docs/harness_seams.md lists them, from `seams.py`: what is patched or used, why, which test notices a change, and what
happens with another version of lm_eval. This package imports nothing else from `harness/`; the code of our tasks and
models is passed in as functions.
"""
