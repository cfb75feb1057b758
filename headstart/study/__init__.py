"""Many runs compared: baselines, statistics, figures, one page."""
