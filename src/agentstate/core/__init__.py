"""What is true: pure functions over frozen data, standard library only. No I/O, no clock, no chance."""
