"""The earlier name of flash_lab.profiling, for the scripts of users; nothing inside takes it."""
