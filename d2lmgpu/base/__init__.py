"""What everything may use: checks of arguments, texts, files, signals, names."""
