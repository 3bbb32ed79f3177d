// Asks the proxy once a second, and draws what it answers. Texts become text nodes only.
"use strict";

(() => {
  const EVERY_MS = 1000;
  const KEPT_S = 900;
  // Answers may come in bursts: a tab in the background is woken late.
  const POINTS_MAX = 1000;
  const HEIGHT_PX = 200;
  const { PALETTE, OUTCOMES, DASH, AXIS, make, digits: rate, or, percent: share } = page;
  const BREAKERS = { closed: "good", ramp: "warn", "half-open": "warn", open: "bad" };

  const at = (id) => document.getElementById(id);
  const sum = (list) => list.reduce((all, n) => all + n, 0);

  // Numbers as text.
  const count = or((n) => n.toLocaleString("en"));
  const size = or((n) => {
    const unit = Math.min(4, Math.max(0, Math.floor(Math.log2(n || 1) / 10)));
    return `${page.digits(n / 1024 ** unit)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
  });
  const time = or((seconds) => page.milliseconds(1000 * seconds));
  const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString("en-GB");
  // Of axes whose steps are not the powers of ten with 1, 2, 2.5 and 5.
  const STEPS = new Map([
    [size, Array.from({ length: 50 }, (_, power) => 2 ** power)],
    [count, Array.from({ length: 36 }, (_, step) => [1, 2, 5][step % 3] * 10 ** Math.floor(step / 3))],
  ]);
  const span = (seconds) => {
    const [days, hours, minutes, rest] = [
      seconds / 86400,
      (seconds / 3600) % 24,
      (seconds / 60) % 60,
      seconds % 60,
    ].map(Math.floor);
    if (days) return `${days} d ${hours} h`;
    if (hours) return `${hours} h ${minutes} min`;
    return minutes ? `${minutes} min ${rest} s` : `${rest} s`;
  };

  // Figures of two answers.
  const requests = (route) => sum(Object.values(route.outcomes));
  const ratio = (outcomes, names) => {
    const lookups = sum(Object.values(outcomes)) - (outcomes.bypass ?? 0);
    return lookups > 0 ? sum(names.map((name) => outcomes[name] ?? 0)) / lookups : null;
  };
  const outcomesOf = (routes, per = (of, route) => of(route)) =>
    Object.fromEntries(
      Object.keys(OUTCOMES).map((name) => [name, sum(routes.map((route) => per((one) => one.outcomes[name], route)))]),
    );
  // Below which a share of the times lies, by interpolation in a bucket. Times beyond the last bound count as this bound.
  const quantile = (counts, bounds, part) => {
    let wanted = part * sum(counts);
    if (!wanted) return null;
    const bucket = counts.findIndex((n) => (wanted -= n) <= 0);
    if (bucket < 0 || bucket >= bounds.length) return bounds.at(-1);
    const least = bounds[bucket - 1] ?? 0;
    return bounds[bucket] + (bounds[bucket] - least) * (wanted / counts[bucket]);
  };

  // How much a figure of a route or an origin has grown in a second: `null` at the start, and 0 after a restart.
  const growth = (now, before) => {
    const seconds = before ? now.uptime_seconds - before.uptime_seconds : 0;
    return (list) => (of, one) => {
      if (seconds <= 0) return null;
      const old = before[list].find((old) => old.name === one.name);
      return old ? Math.max(0, of(one) - of(old)) / seconds : 0;
    };
  };

  const point = (now, before) => {
    const per = growth(now, before)("routes");
    const isFirst = per(requests, now.routes[0]) === null;
    const total = (of) => (isFirst ? null : sum(now.routes.map((route) => per(of, route))));
    const outcomes = isFirst ? {} : outcomesOf(now.routes, per);
    const times = now.routes.flatMap((route) => route.response_time ?? []);
    const bounds = times[0]?.bounds_seconds ?? [];
    const counts = [...bounds, Infinity].map(
      (_, bucket) => total((route) => route.response_time?.counts[bucket] ?? 0) ?? 0,
    );
    const breakers = (state) => now.routes.filter((route) => route.breaker === state).length;
    return {
      ...outcomes,
      hits: ratio(outcomes, ["hit"]),
      served: ratio(outcomes, ["hit", "negative", "stale", "fallback"]),
      loads: total((route) => route.loads),
      failed: total((route) => route.loads_failed),
      refused: total((route) => route.loads_rejected + route.loads_refused),
      median: quantile(counts, bounds, 0.5),
      p99: quantile(counts, bounds, 0.99),
      bytes: now.bytes,
      bytes_limit: now.bytes_limit,
      resident: now.resident_bytes,
      entries: now.entries,
      entries_limit: now.entries_limit,
      connections: now.connections,
      in_flight: now.requests_in_flight,
      open: breakers("open"),
      half_open: breakers("half-open"),
      ramp: breakers("ramp"),
    };
  };

  const PLOTS = [
    {
      title: "Requests by outcome",
      unit: "a second",
      write: rate,
      isStack: true,
      lines: Object.entries(OUTCOMES).map(([name, colour]) => [name, name, colour]),
    },
    {
      title: "Share of requests",
      unit: "",
      write: share,
      most: 1,
      lines: [
        ["hits", "hit ratio", PALETTE.green],
        ["served", "served from the cache", PALETTE.sky, DASH],
      ],
    },
    {
      title: "Loads from origins",
      unit: "a second",
      write: rate,
      lines: [
        ["loads", "loads", PALETTE.blue],
        ["failed", "failed", PALETTE.red],
        ["refused", "refused", PALETTE.orange],
      ],
    },
    {
      title: "Response time",
      unit: "",
      write: time,
      lines: [
        ["median", "50 %", PALETTE.green],
        ["p99", "99 %", PALETTE.blue],
      ],
    },
    {
      title: "Memory",
      unit: "",
      write: size,
      lines: [
        ["bytes", "cache", PALETTE.blue],
        ["bytes_limit", "its limit", PALETTE.red, DASH],
        ["resident", "process", PALETTE.green],
      ],
    },
    {
      title: "Entries",
      unit: "",
      write: count,
      lines: [
        ["entries", "entries", PALETTE.blue],
        ["entries_limit", "their limit", PALETTE.red, DASH],
      ],
    },
    {
      title: "Clients",
      unit: "",
      write: count,
      lines: [
        ["connections", "connections", PALETTE.blue],
        ["in_flight", "requests in flight", PALETTE.orange],
      ],
    },
    {
      title: "Breakers not closed",
      unit: "routes",
      write: count,
      lines: [
        ["open", "open", PALETTE.red],
        ["half_open", "half-open", PALETTE.orange],
        ["ramp", "ramp", PALETTE.sky],
      ],
    },
  ];

  // Columns of the last 15 minutes. A request that fails leaves a gap.
  const seconds = [];
  const columns = Object.fromEntries(PLOTS.flatMap((plot) => plot.lines).map(([name]) => [name, []]));
  const keep = (figures) => {
    const now = Date.now() / 1000;
    seconds.push(now);
    for (const [name, column] of Object.entries(columns)) column.push(figures[name] ?? null);
    const kept = seconds.findIndex((second) => second >= now - KEPT_S);
    const surplus = Math.max(kept, seconds.length - POINTS_MAX);
    for (const column of [seconds, ...Object.values(columns)]) column.splice(0, surplus);
  };

  // The period that all plots show; `null` follows the time.
  let view = null;
  const charts = [];
  const period = () =>
    view ?? { min: Math.max(seconds[0], seconds.at(-1) - KEPT_S), max: Math.max(seconds.at(-1), seconds[0] + 60) };
  const redraw = () => {
    if (!seconds.length) return;
    for (const chart of charts) chart.draw();
    at("pause").setAttribute("aria-pressed", view !== null);
  };
  const look = (min, max) => {
    view = max - min < 2 ? view : { min, max };
    redraw();
  };
  const follow = () => {
    view = null;
    redraw();
  };

  class Chart {
    constructor(plot) {
      const figure = make("figure");
      const caption = make("figcaption", `${plot.title} `);
      caption.append(make("small", plot.unit));
      this.plot = plot;
      this.body = make("div");
      this.body.tabIndex = 0;
      this.body.setAttribute("role", "application");
      this.body.setAttribute("aria-label", `${plot.title}: arrow keys move the crosshair, + and - zoom, 0 follows`);
      this.body.addEventListener("keydown", (event) => this.key(event));
      figure.append(caption, this.body);
      at("plots").append(figure);
      this.chart = figure.chart = new uPlot(this.options(), this.data(), this.body);
      new ResizeObserver(() => this.chart.setSize({ width: this.width(), height: HEIGHT_PX })).observe(this.body);
    }

    options() {
      const { plot } = this;
      const lines = plot.isStack ? plot.lines.toReversed() : plot.lines;
      return {
        width: this.width(),
        height: HEIGHT_PX,
        scales: {
          x: { range: () => [period().min, period().max] },
          y: { range: (_, __, most) => [0, plot.most ?? (most > 0 ? most * 1.08 : 1)] },
        },
        series: [
          { label: "time", value: (_, second, __, index) => clock(index === null ? seconds.at(-1) : second) },
          ...lines.map(([name, label, colour, dash]) => ({
            label,
            stroke: colour,
            width: plot.isStack ? 0 : 2,
            fill: plot.isStack ? colour : undefined,
            dash,
            points: { show: false },
            value: (_, __, ___, index) => plot.write(columns[name].at(index ?? -1)),
          })),
        ],
        axes: [
          { ...AXIS, space: 72, values: (_, splits) => splits.map(clock) },
          { ...AXIS, size: 72, incrs: STEPS.get(plot.write), values: (_, splits) => splits.map(plot.write) },
        ],
        cursor: {
          sync: { key: "stockade", setSeries: false },
          drag: { x: true, y: false, setScale: false },
          bind: { dblclick: () => follow },
        },
        hooks: {
          setSelect: [
            (chart) => {
              const { left, width } = chart.select;
              if (width < 1) return;
              chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              look(chart.posToVal(left, "x"), chart.posToVal(left + width, "x"));
            },
          ],
        },
      };
    }

    data() {
      const shown = this.plot.lines.map(([name]) => columns[name]);
      if (!this.plot.isStack) return [seconds, ...shown];
      // The first outcome lies at the bottom; the highest sum is drawn first.
      let below = seconds.map(() => 0);
      const sums = shown.map(
        (column) => (below = below.map((under, index) => (column[index] === null ? null : under + column[index]))),
      );
      return [seconds, ...sums.reverse()];
    }

    draw() {
      this.chart.setData(this.data());
    }

    width() {
      return Math.max(240, Math.floor(this.body.getBoundingClientRect().width));
    }

    key(event) {
      const { chart } = this;
      const { min, max } = period();
      const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
      const last = seconds.length - 1;
      if (event.key in moves) {
        const index = Math.min(last, Math.max(0, (chart.cursor.idx ?? last) + moves[event.key]));
        chart.setCursor({ left: chart.valToPos(seconds[index], "x"), top: 10 }, true, true);
      } else if (event.key === "0") {
        follow();
      } else if (event.key === "+" || event.key === "-") {
        const middle = seconds[chart.cursor.idx] ?? (min + max) / 2;
        const factor = event.key === "+" ? 0.5 : 2;
        look(
          Math.max(seconds[0], middle - (middle - min) * factor),
          Math.min(seconds[last], middle + (max - middle) * factor),
        );
      } else {
        return;
      }
      event.preventDefault();
    }
  }

  const figure = (label, value, part) => {
    const box = make("div", undefined, "figure");
    box.append(make("b", value), make("span", label));
    if (part !== undefined) {
      const meter = make("div", undefined, "meter");
      const level = meter.appendChild(make("i"));
      level.style.width = `${Math.min(100, 100 * part)}%`;
      box.append(meter);
    }
    return box;
  };
  const bar = (outcomes) => {
    const all = sum(Object.values(outcomes));
    const made = make("div", undefined, "bar");
    for (const [name, colour] of Object.entries(OUTCOMES).filter(([name]) => outcomes[name])) {
      const part = made.appendChild(make("i"));
      part.style.width = `${(100 * outcomes[name]) / all}%`;
      part.style.background = colour;
    }
    const words = Object.entries(outcomes).filter(([, n]) => n);
    made.title = words.map(([name, n]) => `${name} ${count(n)}`).join(", ");
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", made.title || "no requests");
    return made;
  };
  // A heading that begins with `<` is on the left, as its column.
  const table = (id, headings, rows) => {
    const table = at(id);
    // A text that is being selected stays.
    if (!getSelection().isCollapsed && table.contains(getSelection().anchorNode)) return;
    const line = (tag, cells) => {
      const row = make("tr");
      cells.forEach((cell, column) => {
        const made = row.appendChild(make(tag, undefined, headings[column].startsWith("<") ? "left" : ""));
        made.append(cell instanceof Node ? cell : String(cell));
        if (cell.className === "clamped") made.className = "key";
        if (tag === "th") made.scope = "col";
      });
      return row;
    };
    const [head, body] = [make("thead"), make("tbody")];
    head.append(
      line(
        "th",
        headings.map((heading) => heading.replace("<", "")),
      ),
    );
    body.append(...rows.map((row) => line("td", row)));
    table.replaceChildren(head, body);
  };
  const keyText = (key) => {
    const made = make("div", key, "clamped");
    made.title = key;
    return made;
  };
  // A bar from the middle: to the right what is more, to the left what is less. `most` fills a half.
  const deviation = (value, most) => {
    const made = make("div", undefined, "deviation");
    const level = made.appendChild(make("i"));
    const half = most > 0 ? Math.min(50, (50 * Math.abs(value)) / most) : 0;
    level.className = value < 0 ? "less" : "more";
    level.style.width = `${half}%`;
    level.style.left = `${value < 0 ? 50 - half : 50}%`;
    return made;
  };
  const points = or((n) => `${n < 0 ? "−" : "+"}${Math.abs(100 * n).toFixed(1)}`);
  const showShadow = (shadow) => {
    at("shadow").hidden = !shadow;
    if (!shadow) return;
    const others = shadow.ghosts.slice(1);
    const most = Math.max(0.01, ...others.map((ghost) => Math.abs(ghost.hit_ratio_change ?? 0)));
    table(
      "ghosts",
      ["other", "limit", "policy", "hit ratio, points", "<", "loads, times"],
      others.map((ghost) => [
        ghost.name,
        [
          ...(ghost.bytes_limit === null ? [] : [size(ghost.bytes_limit)]),
          ...(ghost.entries_limit === null ? [] : [`${count(ghost.entries_limit)} entries`]),
        ].join(", "),
        ghost.policy,
        points(ghost.hit_ratio_change),
        deviation(ghost.hit_ratio_change ?? 0, most),
        or((n) => n.toFixed(2))(ghost.loads_ratio),
      ]),
    );
    const [own] = shadow.ghosts;
    at("shadow-note").textContent =
      `${count(own.hour.requests)} requests of the last hour, simulated over ${share(shadow.sampled_share)} of the keys. Points ` +
      "are differences of hit ratios; the loads of this cache are 1.";
  };
  const failures = (n) => make("span", count(n), n ? "bad" : "quiet");

  const show = (now, before, latest, keys) => {
    const per = growth(now, before);
    const outcomes = outcomesOf(now.routes);
    const of = (name, limit) => (limit ? `${name} of ${limit}` : name);
    const figures = [
      figure("requests a second", rate(before ? sum(now.routes.map((route) => per("routes")(requests, route))) : null)),
      figure("hit ratio now", share(latest.hits), latest.hits ?? 0),
      figure("hit ratio since start", share(ratio(outcomes, ["hit"])), ratio(outcomes, ["hit"]) ?? 0),
      figure("loads a second", rate(latest.loads)),
      ...(now.bytes === null
        ? []
        : [
            figure(
              of("cache memory", now.bytes_limit && size(now.bytes_limit)),
              size(now.bytes),
              now.bytes_limit ? now.bytes / now.bytes_limit : undefined,
            ),
          ]),
      figure(
        of("entries", now.entries_limit && count(now.entries_limit)),
        count(now.entries),
        now.entries_limit ? now.entries / now.entries_limit : undefined,
      ),
      figure("process memory", size(now.resident_bytes)),
      figure("connections", count(now.connections)),
      figure("requests in flight", count(now.requests_in_flight)),
      ...(now.log_dropped ? [figure("log lines dropped", count(now.log_dropped))] : []),
    ];
    at("figures").replaceChildren(...figures);

    const ofRoutes = per("routes");
    table(
      "routes",
      ["route", "requests/s", "requests", "hit ratio", "<outcomes", "loads/s", "loads failed", "in flight", "breaker"],
      now.routes.map((route) => [
        route.name,
        rate(ofRoutes(requests, route)),
        count(requests(route)),
        share(ratio(route.outcomes, ["hit"])),
        bar(route.outcomes),
        rate(ofRoutes((one) => one.loads, route)),
        failures(route.loads_failed),
        count(route.loads_in_flight),
        route.breaker ? make("span", route.breaker, `word ${BREAKERS[route.breaker]}`) : make("span", "none", "quiet"),
      ]),
    );
    const ofOrigins = per("origins");
    table(
      "origins",
      ["origin", "<servers", "requests/s", "requests", "failures", "busy", "idle", "waiting"],
      now.origins.map((origin) => {
        const servers = make("span");
        for (const { address, is_healthy } of origin.servers) {
          servers.append(
            make("span", is_healthy ? address : `${address} unhealthy`, `word ${is_healthy ? "good" : "bad"}`),
            " ",
          );
        }
        return [
          origin.name,
          servers,
          rate(ofOrigins((one) => one.requests, origin)),
          count(origin.requests),
          failures(origin.failures),
          count(origin.connections_busy),
          count(origin.connections_idle),
          count(origin.waiting),
        ];
      }),
    );
    showShadow(now.shadow);
    // The share is too high by the error at most.
    const shares = ({ share: most, error }) =>
      error < 0.0005 ? share(most) : `${(100 * (most - error)).toFixed(1)}–${share(most)}`;
    const keyRows = (list) => list.map((one) => [keyText(one.key), shares(one), rate(one.rate)]);
    table("hottest", ["<key", "of requests", "requests/s"], keyRows(keys.hottest));
    table("missed", ["<key", "of misses", "misses/s"], keyRows(keys.most_missed));
    table(
      "slowest",
      ["<key", "time", "status", "at"],
      keys.slowest_loads.map((load) => [
        keyText(load.key),
        time(load.seconds),
        load.status ?? make("span", "none", "bad"),
        clock(load.ended_at),
      ]),
    );
    at("state").textContent = `${now.is_draining ? "draining" : "running"} for ${span(now.uptime_seconds)}`;
    at("state").className = now.is_draining ? "bad" : "";
  };

  const ask = async (path) => {
    const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`/${path} answers ${answer.status}`);
    return answer.json();
  };
  let before = null;
  const update = async () => {
    const began = performance.now();
    try {
      const [now, keys] = await Promise.all([ask("stats"), ask("keys")]);
      const latest = point(now, before);
      keep(latest);
      show(now, before, latest, keys);
      before = now;
    } catch (error) {
      keep({});
      before = null;
      at("state").textContent = `no answer: ${error.message}`;
      at("state").className = "bad";
    }
    if (!charts.length) charts.push(...PLOTS.map((plot) => new Chart(plot)));
    redraw();
    setTimeout(update, Math.max(100, EVERY_MS - (performance.now() - began)));
  };

  for (const [name, colour] of Object.entries(OUTCOMES)) {
    const word = make("span");
    word.appendChild(make("i")).style.background = colour;
    word.append(name);
    at("legend").append(word);
  }
  at("pause").addEventListener("click", () => {
    view = view ? null : period();
    redraw();
  });
  at("theme").addEventListener("change", () => {
    document.documentElement.dataset.theme = at("theme").value;
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  update();
})();
