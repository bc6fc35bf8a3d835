"""A benchmark's question: read from its row or its rendered prompt, written as text; guards."""
