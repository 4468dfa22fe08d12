"""Copies of the training state in host memory that is kept between saves."""
