"""Many runs compared: baselines, statistics, pictures, one page."""
