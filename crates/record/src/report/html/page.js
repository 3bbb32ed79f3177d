// Draws the plots of the page from the data in it. Without scripts the tables remain.
"use strict";

const report = (() => {
  const { OUTCOMES, DASH, AXIS, colour, digits, variable: style } = page;
  const HEIGHT_PX = 260;

  // The names of arms that are not shown, in all parts of the page. A part has arms of its own, or none.
  const unchecked = new Set();
  let drawn = [];
  // View, axis and zoom of each plot by its place: kept while its part of the page is replaced.
  const left = new Map();
  const shown = (unit, value) => (unit === "ms" ? page.milliseconds(value) : digits(value));
  const clock = (seconds) => {
    const two = (part) => String(part).padStart(2, "0");
    const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
    const rest = Math.round(seconds % 60);
    return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
  };
  // 99.9 of 1000: as many nines as needed.
  const percentile = (inverse) => {
    const decimals = Math.max(0, Math.ceil(Math.log10(inverse) - 2 - 1e-9));
    return `${((1 - 1 / inverse) * 100).toFixed(decimals)} %`;
  };
  const X_TEXT = { seconds: clock, percentile, workers: digits, users: digits };
  // Steps of an axis of seconds: round numbers of seconds, minutes, hours and days.
  const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800];
  const decades = (_, __, least, most) => {
    const splits = [];
    for (let split = 10 ** Math.floor(Math.log10(least)); split <= most * 1.0001; split *= 10) splits.push(split);
    return splits;
  };
  // A time of 0 has no logarithm: its cell stands below the others.
  const ZERO_CELL = -48;
  // Nothing is below it on a logarithmic axis.
  const positive = (values) => values.map((value) => (value > 0 ? value : null));

  // A line of a run in progress may have none yet.
  const hasValues = (line) => line.ys.some((y) => y !== null && y !== 0);

  class Chart {
    constructor(figure, plot) {
      const { arms } = figure;
      Object.assign(this, { figure, plot, arms, isLog: plot.is_log, ...left.get(figure.dataset.place) });
      this.view = plot.views.includes(this.chosen) ? this.chosen : (plot.views[plot.view] ?? null);
      this.head = figure.querySelector("figcaption");
      this.body = figure.appendChild(document.createElement("div"));
      this.addControls();
      this.build();
      if (this.zoom) this.chart.setScale("x", this.zoom);
      this.resizes = new ResizeObserver(() => this.resize());
      this.resizes.observe(this.body);
    }

    // The lines of the chosen view.
    lines() {
      return this.plot.lines.filter((line) => hasValues(line) && (line.view === null || line.view === this.view));
    }

    // The point whose figures the legend has while there is no crosshair: the last one that every line has.
    last() {
      const { xs } = this.plot;
      const ends = this.lines().map((line) => line.ys.findLastIndex((y) => y !== null));
      return Math.max(0, Math.min(xs.length - 1, ...ends));
    }

    // Its view, axis and zoom.
    state() {
      const { min, max } = this.chart.scales.x;
      const [first, last] = [this.plot.xs[0], this.plot.xs.at(-1)];
      return { chosen: this.chosen, isLog: this.isLog, zoom: min > first || max < last ? { min, max } : undefined };
    }

    // Draws the added points.
    refresh() {
      const count = this.lines().length;
      if (this.plot.kind !== "heat" && count !== this.chart.series.length - 1) {
        const { zoom } = this.state();
        this.build();
        if (zoom) this.chart.setScale("x", zoom);
        return;
      }
      const { min, max } = this.chart.scales.x;
      this.chart.batch(() => {
        this.chart.setData(this.data(), false);
        this.chart.setScale("x", { min, max });
      });
    }

    isOn(line) {
      return line.arm === null || !unchecked.has(this.arms[line.arm]);
    }

    addControls() {
      const controls = this.head.appendChild(document.createElement("span"));
      controls.className = "controls";
      if (this.plot.views.length > 1) {
        const select = controls.appendChild(document.createElement("select"));
        select.setAttribute("aria-label", `shown in ${this.plot.title}`);
        this.plot.views.forEach((view) => select.add(new Option(view, view, false, view === this.view)));
        select.addEventListener("change", () => {
          this.view = this.chosen = select.value;
          this.build();
        });
      }
      if (this.plot.kind === "lines") {
        const button = controls.appendChild(document.createElement("button"));
        button.type = "button";
        button.textContent = "log";
        button.setAttribute("aria-pressed", this.isLog);
        button.addEventListener("click", () => {
          this.isLog = !this.isLog;
          button.setAttribute("aria-pressed", this.isLog);
          this.build();
        });
      }
    }

    data() {
      const columns = this.lines().map((line) => line.ys);
      if (this.plot.kind === "stack") {
        // The first outcome lies at the bottom; the highest sum is drawn first.
        const known = Math.max(...columns.map((ys) => ys.length));
        let below = this.plot.xs.map((_, index) => (index < known ? 0 : null));
        const sums = columns.map(
          (ys) => (below = below.map((sum, index) => (sum === null ? null : sum + (ys[index] ?? 0)))),
        );
        return [this.plot.xs, ...sums.reverse()];
      }
      if (this.plot.kind === "heat") return [this.plot.xs, this.plot.xs.map(() => null)];
      return [this.plot.xs, ...(this.isLog ? columns.map(positive) : columns)];
    }

    series() {
      const { kind, unit } = this.plot;
      const lines = kind === "stack" ? this.lines().slice().reverse() : this.lines();
      if (kind === "heat") return [{ label: "", show: true, value: () => "", points: { show: false } }];
      return lines.map((line, index) => {
        const stroke = kind === "stack" ? OUTCOMES[line.name] : () => colour(line.arm ?? index);
        return {
          label: kind === "stack" ? line.name : [this.arms[line.arm], line.name].filter(Boolean).join(" "),
          stroke,
          width: kind === "stack" ? 0 : 2,
          fill: kind === "stack" ? OUTCOMES[line.name] : undefined,
          dash: line.is_dashed ? DASH : undefined,
          show: kind === "stack" || this.isOn(line),
          spanGaps: this.plot.x !== "seconds",
          points: { show: this.plot.x !== "seconds" && this.plot.x !== "percentile" },
          value: (_, __, ___, index) => {
            const y = line.ys[index ?? this.last()];
            return (index ?? null) === null && (y ?? null) === null ? "" : shown(unit, y);
          },
        };
      });
    }

    build() {
      this.chart?.destroy();
      const { plot } = this;
      const isTime = plot.x === "seconds";
      const isHeat = plot.kind === "heat";
      this.chart = this.figure.chart = new uPlot(
        {
          width: this.width(),
          height: HEIGHT_PX,
          scales: {
            x: { time: false, distr: isTime ? 1 : 3, range: (_, least, most) => [least, most] },
            y: isHeat ? this.heatScale() : this.lineScale(),
          },
          series: [
            { label: plot.x, value: (_, __, ___, index) => X_TEXT[plot.x](plot.xs[index ?? this.last()]) },
            ...this.series(),
          ],
          axes: [this.xAxis(), this.yAxis()],
          cursor: {
            sync: isTime ? { key: plot.sync, setSeries: false } : undefined,
            drag: { x: true, y: false },
            focus: { prox: 24 },
          },
          focus: { alpha: 0.35 },
          legend: { live: !isHeat, show: !isHeat },
          hooks: { drawClear: [(chart) => this.shade(chart)], draw: isHeat ? [(chart) => this.heat(chart)] : [] },
        },
        this.data(),
        this.body,
      );
    }

    xAxis() {
      const { x, xs } = this.plot;
      const values = (_, splits) => splits.map((split) => (split === null ? "" : X_TEXT[x](split)));
      if (x === "seconds") return { ...AXIS, values, space: 60, incrs: STEPS_S };
      return { ...AXIS, values, space: 60, splits: x === "percentile" ? decades : () => xs };
    }

    yAxis() {
      const { kind, unit, cells_per_decade: decade } = this.plot;
      const isHeat = kind === "heat";
      const written = (value) => (isHeat ? shown("ms", 10 ** (value / decade)) : shown(unit, value));
      const values = (_, splits) => splits.map((value) => (value === null ? "" : written(value)));
      return {
        ...AXIS,
        values,
        size: 68,
        ...(isHeat ? { splits: (_, __, least, most) => this.heatSplits(least, most) } : {}),
      };
    }

    lineScale() {
      if (this.isLog) return { distr: 3 };
      return { distr: 1, range: { min: { mode: 1, hard: 0, soft: 0 }, max: { pad: 0.08 } } };
    }

    width() {
      return Math.max(240, Math.floor(this.body.getBoundingClientRect().width));
    }

    resize() {
      const width = this.width();
      if (this.chart && Math.abs(this.chart.width - width) > 1) this.chart.setSize({ width, height: HEIGHT_PX });
    }

    applyArms() {
      if (this.plot.kind !== "lines") return;
      this.lines().forEach((line, index) => this.chart.setSeries(index + 1, { show: this.isOn(line) }, false));
    }

    // The stages of the origin, and seconds that something outside of the test disturbed, hatched.
    shade(chart) {
      const { ctx, bbox } = chart;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textBaseline = "top";
      ctx.textAlign = "left";
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([]);
      (this.plot.stages ?? []).forEach((stage, index) => {
        const [from, to] = [stage.from, stage.to].map((x) => chart.valToPos(x, "x", true));
        ctx.fillStyle = style(index % 2 ? "--stage" : "--other-stage");
        ctx.fillRect(from, bbox.top, to - from, bbox.height);
        ctx.save();
        ctx.beginPath();
        ctx.rect(from, bbox.top, to - from, bbox.height);
        ctx.clip();
        ctx.fillStyle = style("--quiet");
        ctx.fillText(stage.behavior, Math.max(from, bbox.left) + 4, bbox.top + 3);
        ctx.restore();
      });
      ctx.strokeStyle = style("--quiet");
      ctx.fillStyle = style("--quiet");
      ctx.textBaseline = "bottom";
      ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
      (this.plot.events ?? []).forEach((mark, index) => {
        const x = chart.valToPos(mark.at, "x", true);
        const bottom = bbox.top + bbox.height;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bottom);
        ctx.stroke();
        // Names of neighbours stand in different rows, and end within the plot.
        const last = bbox.left + bbox.width - ctx.measureText(mark.event).width - 4 * devicePixelRatio;
        ctx.fillText(mark.event, Math.min(x + 4 * devicePixelRatio, last), bottom - (index % 3) * 14 * devicePixelRatio - 3);
      });
      ctx.setLineDash([]);
      ctx.strokeStyle = style("--grid");
      for (const second of this.plot.disturbed) {
        const [from, to] = [second, second + 1].map((x) => chart.valToPos(x, "x", true));
        ctx.save();
        ctx.beginPath();
        ctx.rect(from, bbox.top, Math.max(to - from, 2), bbox.height);
        ctx.clip();
        ctx.beginPath();
        for (let x = from - bbox.height; x < to; x += 8) {
          ctx.moveTo(x, bbox.top + bbox.height);
          ctx.lineTo(x + bbox.height, bbox.top);
        }
        ctx.stroke();
        ctx.restore();
      }
      ctx.restore();
    }

    // Pairs of cell and count for each second of the chosen arm.
    cells() {
      return this.plot.heat.find((arm) => this.arms[arm.arm] === this.view)?.cells ?? [];
    }

    heatScale() {
      let [least, most] = [Infinity, -Infinity];
      for (const second of this.cells()) {
        for (let pair = 0; pair < second.length; pair += 2) {
          if (second[pair] > ZERO_CELL) [least, most] = [Math.min(least, second[pair]), Math.max(most, second[pair])];
        }
      }
      this.lowest = Number.isFinite(least) ? least - 2 : 0;
      return { distr: 1, range: [this.lowest, Math.max(most, this.lowest) + 1] };
    }

    // Whole powers of ten.
    heatSplits(least, most) {
      const decade = this.plot.cells_per_decade;
      const splits = [];
      for (let split = Math.ceil(least / decade) * decade; split <= most; split += decade) splits.push(split);
      return splits;
    }

    heat(chart) {
      const { ctx, bbox } = chart;
      const cells = this.cells();
      const most = cells.reduce(
        (most, second) => second.reduce((most, value, index) => (index % 2 ? Math.max(most, value) : most), most),
        1,
      );
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.fillStyle = "#0072b2";
      cells.forEach((second, index) => {
        const x = this.plot.xs[index];
        const [from, to] = [x, this.plot.xs[index + 1] ?? x + 1].map((at) => chart.valToPos(at, "x", true));
        for (let pair = 0; pair < second.length; pair += 2) {
          const cell = Math.max(second[pair], this.lowest);
          const [top, bottom] = [cell + 1, cell].map((at) => chart.valToPos(at, "y", true));
          ctx.globalAlpha = 0.15 + (0.85 * Math.log1p(second[pair + 1])) / Math.log1p(most);
          ctx.fillRect(from, top, Math.max(to - from, 1), Math.max(bottom - top, 1));
        }
      });
      ctx.restore();
    }

    // Arrow keys move the crosshair; + and - zoom; 0 shows everything.
    key(event) {
      const { chart, plot } = this;
      const last = plot.xs.length - 1;
      const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
      if (event.key in moves) {
        const index = Math.min(last, Math.max(0, (chart.cursor.idx ?? 0) + moves[event.key]));
        chart.setCursor({ left: chart.valToPos(plot.xs[index], "x"), top: 10 }, true, true);
      } else if (event.key === "0") {
        chart.setScale("x", { min: plot.xs[0], max: plot.xs[last] });
      } else if (event.key === "+" || event.key === "-") {
        const { min, max } = chart.scales.x;
        const middle = plot.xs[chart.cursor.idx] ?? (min + max) / 2;
        const factor = event.key === "+" ? 0.5 : 2;
        chart.setScale("x", {
          min: Math.max(plot.xs[0], middle - (middle - min) * factor),
          max: Math.min(plot.xs[last], middle + (max - middle) * factor),
        });
      } else {
        return;
      }
      event.preventDefault();
    }
  }

  const draw = (figure) => {
    observer.unobserve(figure);
    const chart = new Chart(figure, figure.plot);
    chart.body.tabIndex = 0;
    chart.body.setAttribute("role", "application");
    chart.body.setAttribute(
      "aria-label",
      `${chart.plot.title}: arrow keys move the crosshair, + and - zoom, 0 shows all`,
    );
    chart.body.addEventListener("keydown", (event) => chart.key(event));
    drawn.push(chart);
  };
  const undrawn = () =>
    [...document.querySelectorAll("figure[data-plot]:not([hidden])")].filter((figure) => !figure.chart);
  // A plot is drawn when it comes into view: a page of a hundred opens as fast as a page of one. The others follow one by one
  // while the browser has nothing else to do, so that a picture of the whole page has them.
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((entry) => entry.isIntersecting && !entry.target.chart)) draw(entry.target);
    },
    { rootMargin: "400px" },
  );
  const whenIdle = window.requestIdleCallback ?? ((then) => setTimeout(then, 20));
  let isRestDue = false;
  const drawRest = () => {
    if (isRestDue || !undrawn().length) return;
    isRestDue = true;
    whenIdle(() => {
      isRestDue = false;
      undrawn().slice(0, 1).forEach(draw);
      drawRest();
    });
  };
  window.addEventListener("beforeprint", () => undrawn().forEach(draw));

  const isEmpty = (plot) => !plot.lines.some(hasValues) && !(plot.heat ?? []).some((arm) => arm.cells.length);

  // Draws the plots of a part of the page, which has their data.
  const start = (root) => {
    const data = root.querySelector(":scope > script[type='application/json']");
    root.page = data ? JSON.parse(data.textContent) : { arms: [], plots: [] };
    const { arms } = root.page;
    root.querySelectorAll("figure[data-plot]").forEach((figure) => {
      figure.plot = root.page.plots[figure.dataset.plot];
      figure.arms = arms;
      figure.dataset.place = [root.id, figure.plot.sync, figure.plot.title].join("/");
      figure.hidden = isEmpty(figure.plot);
      observer.observe(figure);
    });
    drawRest();
    root.querySelectorAll("[data-arm]").forEach((box) => {
      const arm = Number(box.dataset.arm);
      box.parentElement.style.setProperty("--arm", colour(arm));
      box.checked = !unchecked.has(arms[arm]);
      box.addEventListener("change", () => {
        if (box.checked) unchecked.delete(arms[arm]);
        else unchecked.add(arms[arm]);
        drawn.forEach((chart) => chart.applyArms());
      });
    });
    root.querySelectorAll("[data-copy]").forEach((button) => {
      const settings = button.closest("figure").querySelector("pre");
      button.addEventListener("click", () => {
        // A page from a server without TLS has no clipboard: the text is selected instead.
        const copied = navigator.clipboard?.writeText(settings.textContent) ?? Promise.reject();
        copied.then(
          () => (button.textContent = "copied"),
          () => getSelection().selectAllChildren(settings),
        );
      });
    });
    const theme = root.querySelector("#theme");
    if (!theme) return;
    theme.value = document.documentElement.dataset.theme ?? "";
    theme.addEventListener("change", () => {
      document.documentElement.dataset.theme = theme.value;
      drawn.forEach((chart) => chart.chart.redraw(false));
    });
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    drawn.forEach((chart) => chart.chart.redraw(false)),
  );

  // Puts another part in the place of one; `undefined` removes it.
  const replace = (root, next) => {
    for (const chart of drawn.filter((chart) => root.contains(chart.figure))) {
      left.set(chart.figure.dataset.place, chart.state());
      chart.chart.destroy();
      chart.resizes.disconnect();
    }
    root.querySelectorAll("figure[data-plot]").forEach((figure) => observer.unobserve(figure));
    drawn = drawn.filter((chart) => !root.contains(chart.figure));
    if (!next) return root.remove();
    root.replaceWith(document.adoptNode(next));
    start(next);
  };

  let requested = null;
  // Adds the point of a second to the plots of a part, for the arm that is measured.
  const add = (root, arm, point) => {
    root.page.plots.forEach((plot, index) => {
      if (point.disturbed && !plot.disturbed.includes(point.x)) plot.disturbed.push(point.x);
      plot.lines
        .filter((line) => line.arm === arm)
        .forEach((line, of) => {
          while (line.ys.length < point.at) line.ys.push(null);
          line.ys[point.at] = point.ys[index][of];
        });
      if (index !== point.heat) return;
      const { cells } = plot.heat.find((of) => of.arm === arm);
      while (cells.length < point.at) cells.push([]);
      cells[point.at] = point.cells;
    });
    requested ??= requestAnimationFrame(() => {
      requested = null;
      root.querySelectorAll("figure[data-plot]").forEach((figure) => (figure.hidden = isEmpty(figure.plot)));
      drawn.filter((chart) => root.contains(chart.figure)).forEach((chart) => chart.refresh());
      drawRest();
    });
  };

  document.querySelectorAll("section#now, main").forEach(start);
  return { add, replace };
})();
