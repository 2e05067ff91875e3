"""Running calls: the one door, the executors behind it, and what they need."""
