"""A warm process that has imported other libraries' training loops too: each takes a rank seconds of CPU time."""

import sys
from pathlib import Path

from trainhouse.workers.launcher import preload, warm

# What the scripts of test_session_trainers.py and the session's parts for them import.
LOOPS = ("transformers.models.gpt2.modeling_gpt2", "transformers.trainer", "lightning.pytorch", "lightning.pytorch.trainer.trainer")

if __name__ == "__main__":
    preload.MODULES += LOOPS
    sys.path.remove(str(Path(__file__).parent))
    warm.main()
