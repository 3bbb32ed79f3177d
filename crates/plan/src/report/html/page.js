"use strict";
const data = JSON.parse(document.getElementById("curves").textContent);
const VIEWS = ["hit ratio", "byte hit ratio", "loads per request", "requests that wait"];
// Lines beyond these share a colour, and are dashed.
const DIFFERENT = 8;
const element = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

function draw(place) {
  const number = Number(place.dataset.lifetime);
  const lines = data.lifetimes[number];
  // At first those that ship, and the bound.
  const shown = lines.map((line) => line.ships || line.bound);
  let view = 0;
  const views = element("fieldset", {}, element("legend", { textContent: "Show" }));
  VIEWS.forEach((name, index) => {
    const choice = element("input", { type: "radio", name: `view${number}`, checked: index === 0 });
    choice.addEventListener("change", () => ((view = index), redraw()));
    views.append(element("label", {}, choice, name));
  });
  const policies = element("fieldset", {}, element("legend", { textContent: "Policies" }));
  lines.forEach((line, index) => {
    const choice = element("input", { type: "checkbox", checked: shown[index] });
    choice.addEventListener("change", () => ((shown[index] = choice.checked), redraw()));
    const sample = element("span", { className: "line" });
    sample.style.borderTopColor = page.colour(index);
    sample.style.borderTopStyle = index < DIFFERENT ? "solid" : "dashed";
    policies.append(element("label", {}, choice, sample, line.policy));
  });
  const canvas = element("div", { role: "img" });
  const readout = element("p", { className: "readout" });
  readout.setAttribute("aria-live", "polite");
  place.append(views, policies, canvas, readout);
  let plot;
  const redraw = () => {
    plot?.destroy();
    canvas.setAttribute(
      "aria-label",
      `${VIEWS[view]} by size, a line for each policy; the table below has the figures`,
    );
    const width = canvas.clientWidth;
    const chosen = data.chosen && data.chosen.lifetime === number ? data.chosen.room : null;
    plot = new uPlot(
      {
        width,
        height: Math.max(260, Math.min(420, width * 0.5)),
        legend: { show: false },
        cursor: { points: { size: 7 }, drag: { x: true, y: false } },
        scales: {
          x: { time: false, distr: 3, log: 2 },
          y: { range: (_, low, high) => [Math.max(0, low - 0.02), Math.min(1, high + 0.02)] },
        },
        axes: [
          {
            ...page.AXIS,
            label: data.axis,
            values: (_, splits) => splits.map((split) => data.names[data.sizes.indexOf(split)] ?? ""),
            splits: () => data.sizes,
            space: 60,
            filter: (self, splits) => {
              const step = Math.ceil(splits.length / Math.max(2, Math.floor(self.width / 90)));
              return splits.map((split, index) => (index % step === 0 ? split : null));
            },
          },
          { ...page.AXIS, values: (_, splits) => splits.map((split) => `${Number((100 * split).toFixed(2))} %`), size: 55 },
        ],
        series: [
          {},
          ...lines.map((line, index) => ({
            label: line.policy,
            show: shown[index],
            stroke: () => page.colour(index),
            width: data.chosen?.policy === line.policy ? 3 : 1.5,
            dash: index < DIFFERENT ? undefined : page.DASH,
            points: { size: 5 },
          })),
        ],
        hooks: {
          draw: [
            (self) => {
              if (chosen == null || chosen > data.sizes.at(-1)) return;
              const x = Math.round(self.valToPos(chosen, "x", true));
              self.ctx.save();
              self.ctx.strokeStyle = page.variable("--quiet");
              self.ctx.setLineDash([4, 4]);
              self.ctx.beginPath();
              self.ctx.moveTo(x, self.bbox.top);
              self.ctx.lineTo(x, self.bbox.top + self.bbox.height);
              self.ctx.stroke();
              self.ctx.restore();
            },
          ],
          setCursor: [
            (self) => {
              const at = self.cursor.idx;
              if (at == null) return void (readout.textContent = "");
              const values = lines.flatMap((line, index) =>
                shown[index] ? [`${line.policy} ${page.percent(line.views[view][at])}`] : [],
              );
              readout.textContent = `${data.names[at]}: ${values.join(", ")}`;
            },
          ],
        },
      },
      [data.sizes, ...lines.map((line) => line.views[view])],
      canvas,
    );
    place.chart = plot;
  };
  redraw();
  new ResizeObserver(() => canvas.clientWidth !== plot.width && redraw()).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

document.querySelectorAll(".plot").forEach(draw);
document.querySelectorAll(".copy").forEach((copy) => {
  copy.addEventListener("click", async () => {
    const code = copy.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      copy.textContent = "Press Ctrl+C";
    }
  });
});
