"""What this machine has for the package, whether it works, and what to do where it does not."""
