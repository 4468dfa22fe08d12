// The best trials and a sample of the others as runs, which the parts of `compare` lay out: what a trial has on each axis, its name, its colour.
import { useMemo } from "../../kit.js";
import { scaleOf } from "../compare/axes.js";
import { pathOf, valuesOf } from "../../study_words.js";
import { usePart } from "./again.js";

const DRAWN = 150;
const MOST_AXES = 12;

export const useSample = (study) => usePart(pathOf(study.project, study.study, "/sample", { limit: DRAWN }), study);

const axis = (name, id, pick, values, log) => {
  const scale = scaleOf(values, log);
  return scale && { id, title: name, full: log && scale.log ? `${name} (log)` : name, of: pick, ...scale };
};

export function useRuns(study, found) {
  return useMemo(() => {
    // A trial that took the value of an equal one has that one's job, parameters and values: one of them is drawn.
    const runs = found.items.filter((one, place) => found.items.findIndex((other) => other.job_id === one.job_id) === place);
    const names = Object.fromEntries(runs.map((run) => [run.job_id, `trial ${run.trial}: ${study.metrics.map((metric) => `${metric} ${run.values[metric] ?? "–"}`).join(", ")}; ${valuesOf(run)}`]));
    const parameters = Object.entries(study.spec.space).map(([name, own]) => {
      const pick = (run) => run.parameters[name];
      return axis(name, `parameter ${name}`, pick, runs.map(pick), own.log === true);
    });
    const metrics = study.metrics.map((name) => {
      const pick = (run) => run.values[name] ?? undefined;
      return axis(name, `metric ${name}`, pick, runs.map(pick), false);
    });
    const shown = [...parameters.filter(Boolean).slice(0, MOST_AXES - Math.min(metrics.length, 3)), ...metrics.filter(Boolean).slice(0, 3)];
    return { runs, names, axes: shown, metrics: metrics.filter(Boolean), left_out: parameters.filter(Boolean).length + metrics.filter(Boolean).length - shown.length, tokens: tokensOf(study, runs) };
  }, [found, study.spec]);
}

// The best trials, the best fifth of the others by the first metric, and the rest.
function tokensOf(study, runs) {
  const [metric] = study.metrics;
  const sign = study.modes[0] === "min" ? 1 : -1;
  const ordered = runs.filter((run) => Number.isFinite(run.values[metric])).sort((a, b) => sign * (a.values[metric] - b.values[metric]));
  const good = new Set(ordered.slice(0, Math.ceil(ordered.length / 5)).map((run) => run.job_id));
  return new Map(runs.map((run) => [run.job_id, run.best ? "--c2" : good.has(run.job_id) ? "--c1" : "--s-unknown"]));
}
