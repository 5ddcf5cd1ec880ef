"""Floor 0: the values and the rules of passback. No I/O, no await, no clock, no logging."""
