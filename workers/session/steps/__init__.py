"""Steps of training: boundaries, schedule, progress, step times."""
