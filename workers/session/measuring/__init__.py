"""Figures of a step: where its time goes, its FLOPs, and the share of the device's peak that they are."""
