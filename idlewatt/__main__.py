"""`python -m idlewatt` is the console script."""

from idlewatt.cli import main

raise SystemExit(main())
