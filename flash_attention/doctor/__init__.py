"""What this machine has for the package, whether it works, and what to do where it does not."""

from ..without_torch import require_torch

require_torch()
