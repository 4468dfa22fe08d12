"""Steps of training: boundaries, progress, step times, signs of life."""
