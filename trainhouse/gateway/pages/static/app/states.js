// States in words and colours (tokens of tokens.css): of jobs, nodes, devices, and where device time went.
export const JOB_STATES = {
  PENDING: ["waiting", "--s-waiting"], SCHEDULED: ["scheduled", "--s-starting"], INITIALIZING: ["starting", "--s-starting"],
  RUNNING: ["running", "--s-running"], CHECKPOINTING: ["saving", "--s-saving"], PREEMPTED: ["being preempted", "--s-doubt"],
  SUCCEEDED: ["succeeded", "--s-done"], FAILED: ["failed", "--s-failed"], CANCELLED: ["cancelled", "--s-closed"],
  REJECTED: ["rejected", "--s-failed"], NEEDS_REVIEW: ["needs review", "--s-review"],
};
export const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"]);

export const NODE_STATES = { ALIVE: ["alive", "--s-running"], SUSPECTED: ["suspected", "--s-doubt"], LOST: ["lost", "--s-failed"] };

// By the letter that the fleet's answer has for each device.
export const DEVICE_STATES = {
  F: ["free", "--s-free"], S: ["starting", "--s-starting"], R: ["running", "--s-running"], C: ["saving", "--s-saving"],
  X: ["closed", "--s-closed"], D: ["suspected", "--s-doubt"], L: ["lost", "--s-failed"],
};

export const TIME_KINDS = {
  stepping: ["training steps", "--s-running"], starting: ["starting", "--s-starting"], data_wait: ["waiting for data", "--s-waiting"],
  checkpoint_stall: ["saving", "--s-saving"], rework: ["steps done again", "--c5"], hung: ["hung", "--s-failed"], idle: ["idle", "--s-closed"],
  quarantined: ["quarantined", "--c8"], unknown: ["unknown", "--s-unknown"],
};

// Parts of a step as ranks measure them, by the middle of their metric's name.
export const STEP_PARTS = {
  data: ["waiting for data", "--s-waiting"], forward: ["forward", "--c1"], backward: ["backward", "--c2"], optimizer: ["optimizer", "--c3"],
  stall: ["held up by saves", "--s-saving"], rest: ["all else", "--s-unknown"],
};

export const SERIES = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];

export const jobWord = (state) => (JOB_STATES[state] || [String(state || "unknown").toLowerCase()])[0];
export const jobColour = (state) => (JOB_STATES[state] || ["", "--s-unknown"])[1];
