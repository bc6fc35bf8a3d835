"""What stands between our requests and the run's model."""
