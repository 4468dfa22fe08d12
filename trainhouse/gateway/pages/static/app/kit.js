// Components without a compiler: one place that names the vendored libraries.
import { h, render } from "../vendor/preact/preact.js";
import { useEffect, useMemo, useRef, useState, useCallback } from "../vendor/preact/hooks.js";
import htm from "../vendor/htm/htm.js";

const html = htm.bind(h);

export { html, render, useEffect, useMemo, useRef, useState, useCallback };
