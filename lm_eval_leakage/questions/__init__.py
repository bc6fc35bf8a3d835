"""Questions of a benchmark: read from data rows or rendered prompts, rendered as text, checked for natural orders."""
