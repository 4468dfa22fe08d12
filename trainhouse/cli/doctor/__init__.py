"""`trainhouse doctor`: checks of a machine, a deployment and a spec."""
