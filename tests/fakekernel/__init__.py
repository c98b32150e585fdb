"""A fake kernel: the registers and files of a simulated machine, mounted as a directory."""
