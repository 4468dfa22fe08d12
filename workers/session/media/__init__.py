"""Images, tables, histograms, texts and audio samples of a step: their values, and their way to the store."""
