"""What would end a run, or make it wrong, said before its model is loaded."""
