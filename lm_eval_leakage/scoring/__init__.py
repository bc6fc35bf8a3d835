"""Log-likelihoods of texts that share prefixes, each shared token computed once."""
