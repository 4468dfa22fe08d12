"""Preemption: who may be asked for devices, in which order, and the plan that costs least."""
