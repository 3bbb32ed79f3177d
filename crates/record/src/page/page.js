// What the pages share: colours of both themes, numbers as text, elements, axes of plots.
"use strict";

const page = (() => {
  // Distinguishable with and without colour vision (Okabe and Ito, 2008).
  const PALETTE = {
    red: "#d55e00",
    blue: "#0072b2",
    orange: "#e69f00",
    green: "#009e73",
    pink: "#cc79a7",
    sky: "#56b4e9",
    grey: "#808080",
  };
  const OUTCOMES = {
    hit: PALETTE.green,
    negative: "#999933",
    stale: PALETTE.orange,
    coalesced: PALETTE.sky,
    miss: PALETTE.blue,
    fallback: PALETTE.pink,
    bypass: PALETTE.grey,
    error: PALETTE.red,
  };
  const make = (tag, text, name) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  };
  // A canvas takes no variables: an element of the colour says what it is in the chosen theme.
  let probe;
  const variable = (name) => {
    if (!probe) {
      probe = document.body.appendChild(make("span"));
      probe.hidden = true;
    }
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const text = () => variable("--text");
  // The last line has the colour of the text.
  const COLOURS = [...Object.values(PALETTE), null];
  const grid = { stroke: () => variable("--grid"), width: 1 };

  // Four significant digits.
  const digits = (value) => Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
  // A missing figure is a dash.
  const or = (written) => (value) => (value === null || value === undefined ? "–" : written(value));
  const milliseconds = or((ms) => {
    if (ms >= 1000) return `${digits(ms / 1000)} s`;
    return ms >= 1 || ms === 0 ? `${digits(ms)} ms` : `${digits(ms * 1000)} µs`;
  });

  return {
    PALETTE,
    OUTCOMES,
    DASH: [6, 4],
    AXIS: { stroke: text, grid, ticks: grid, font: "12px system-ui, sans-serif" },
    colour: (line) => COLOURS[line % COLOURS.length] ?? text(),
    make,
    variable,
    digits: or(digits),
    milliseconds,
    percent: or((share) => `${(100 * share).toFixed(1)} %`),
    or,
  };
})();
