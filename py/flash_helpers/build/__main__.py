"""`python -m flash_helpers.build`: builds the extension and puts it into flash_attention/."""

from __future__ import annotations

import sys

from .errors import BuildError


def main() -> int:
    try:
        from .driver import build, publish
        from .report import summary
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is not installed: pip install {error.name}", file=sys.stderr)
        return 1
    from ..paths import repository_root

    try:
        result = build()
        root = repository_root()
        assert root is not None, "make_plan refuses an installed copy"
        target = publish(result.extension, root / "flash_attention")
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{target.relative_to(root)}: {summary(result.rows)}; {result.seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
