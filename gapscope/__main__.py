"""`python -m gapscope` is the `gapscope` command."""

from __future__ import annotations

from gapscope.cli.app import main

if __name__ == "__main__":
    main()
