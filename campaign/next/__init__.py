"""What to measure next: points chosen by what their measurement is expected to improve."""
