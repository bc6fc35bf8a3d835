"""Efficient log-likelihoods of texts that share prefixes: each shared token is computed once."""
