"""Speed, as ratios to what the machine can do at best, measured side by side in one run."""
