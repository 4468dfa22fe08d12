"""Studies beside their machine: suggestions of samplers."""
