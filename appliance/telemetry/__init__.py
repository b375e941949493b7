"""What the daemon says about itself: logs and metrics."""
