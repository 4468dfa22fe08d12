"""One scheduling cycle: from the book (who waits, who runs, what is free) to actions. The simulator and the machine run this same code."""
