"""Sessions for training loops of other libraries: Hugging Face's Trainer and Lightning, in one line of a script."""
