"""A live hardware-counter monitor for the terminal."""
