"""`python -m trainhouse.workers.data.prepare FILE`: one rank of a preparation's job."""

import sys
from pathlib import Path

from trainhouse.workers.data.prepare.preparation_job import main

if __name__ == "__main__":
    main(Path(sys.argv[1]))
