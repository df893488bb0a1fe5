"""What carries plans out: what drivers share."""
