// Data of a part of a study, asked again when the study has changed.
import { useEffect, useRef } from "../../kit.js";
import { useData } from "../../use.js";

export function usePart(path, study) {
  const found = useData(path);
  const seen = useRef(study.updated_at_ms);
  useEffect(() => {
    if (seen.current !== study.updated_at_ms) found.reload();
    seen.current = study.updated_at_ms;
  }, [study.updated_at_ms]);
  return found;
}
