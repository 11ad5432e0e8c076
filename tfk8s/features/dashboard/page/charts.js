// The curves: each of what tasks use and report, with a line for each task that is drawn.
"use strict";

// As many as tasks are drawn, for light and dark pages.
const COLORS = {
  light: ["#0969da", "#bf3989", "#1a7f37", "#9a6700", "#8250df", "#cf222e", "#1b7c83", "#bc4c00", "#57606a", "#4d2d00"],
  dark: ["#58a6ff", "#ff80c8", "#56d364", "#e3b341", "#bc8cff", "#ff7b72", "#76e3ea", "#ffa657", "#b1bac4", "#ffdfb6"],
};
const USAGE = ["CPU (cores)", "Memory (MiB)", "In (KiB/s)", "Out (KiB/s)", "GPU (%)", "GPU memory (MiB)"];
const SCALES = [1, 1 / 1048576, 1 / 1024, 1 / 1024, 100, 1 / 1048576];
const HEIGHT = 180;
const MOST_POINTS = 5000;
const LEAST_SECONDS = 60; // that the axis of time shows

class Curve {
  constructor(title) {
    this.title = title;
    this.times = [];
    this.values = new Map(); // of a task, as many as times; null for a moment without one
  }

  add(time, values) {
    this.times.push(time);
    for (const name of Object.keys(values)) {
      if (!this.values.has(name)) this.values.set(name, new Array(this.times.length - 1).fill(null));
    }
    for (const [name, list] of this.values) list.push(Object.hasOwn(values, name) ? values[name] : null);
    if (this.times.length > MOST_POINTS) {
      this.times.shift();
      for (const list of this.values.values()) list.shift();
    }
  }
}

class Charts {
  constructor(place) {
    this.place = place;
    this.clear();
  }

  clear() {
    this.curves = new Map();
    this.plots = new Map();
    this.place.replaceChildren();
  }

  addUsage(time, tasks) {
    USAGE.forEach((title, number) => {
      const values = Object.create(null);
      for (const [name, amounts] of Object.entries(tasks)) {
        if (typeof amounts[number] === "number") values[name] = amounts[number] * SCALES[number];
      }
      if (Object.keys(values).length) this.curve(title).add(time, values);
    });
  }

  addProgress(time, tasks) {
    const byTitle = new Map();
    for (const [name, progress] of Object.entries(tasks)) {
      const numbers = { "Steps a second": progress.rate, ...progress.metrics };
      for (const [title, value] of Object.entries(numbers)) {
        if (typeof value !== "number") continue;
        if (!byTitle.has(title)) byTitle.set(title, Object.create(null));
        byTitle.get(title)[name] = value;
      }
    }
    for (const [title, values] of byTitle) this.curve(title).add(time, values);
  }

  curve(title) {
    if (!this.curves.has(title) && this.curves.size < 40) this.curves.set(title, new Curve(title));
    return this.curves.get(title) || new Curve(title);
  }

  // Draws the curves of these tasks, each in one figure.
  draw(names) {
    for (const [title, curve] of this.curves) {
      const drawn = names.filter((name) => curve.values.has(name));
      const key = JSON.stringify(drawn);
      const data = [curve.times, ...drawn.map((name) => curve.values.get(name))];
      let plot = this.plots.get(title);
      if (plot && plot.key === key) {
        plot.chart.setData(data);
      } else {
        const figure = plot ? plot.figure : this.figure(title);
        if (plot) plot.chart.destroy();
        plot = { key, figure, chart: this.plot(figure, drawn, data) };
        this.plots.set(title, plot);
      }
      if (plot.chart.cursor.idx === null || plot.chart.cursor.idx === undefined) {
        plot.chart.setLegend({ idx: curve.times.length - 1 }); // the last values, while the mouse is elsewhere
      }
      plot.figure.setAttribute("aria-label", `${title}: ` + drawn.map((name) => `${name} ${shown(last(curve.values.get(name)))}`).join(", "));
    }
  }

  figure(title) {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = title;
    figure.append(caption);
    this.place.append(figure);
    return figure;
  }

  plot(figure, names, data) {
    const style = getComputedStyle(document.documentElement);
    const [text, line] = [style.getPropertyValue("--quiet"), style.getPropertyValue("--line")];
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
    const colors = matchMedia("(prefers-color-scheme: dark)").matches ? COLORS.dark : COLORS.light;
    const series = names.map((label, number) => ({
      label, stroke: colors[number], spanGaps: true, width: 1.5,
      value: (chart, value, place) => shown(value ?? last(chart.data[place])),
    }));
    const options = {
      width: Math.max(200, figure.clientWidth), height: HEIGHT, series: [{}, ...series],
      axes: [axis, { ...axis, size: 70 }], scales: { x: { range: span } },
      cursor: { drag: { x: true, y: false } },
    };
    return new uPlot(options, data, figure);
  }

  resize() {
    for (const { chart, figure } of this.plots.values()) chart.setSize({ width: Math.max(200, figure.clientWidth), height: HEIGHT });
  }

  // The colors of the lines and axes follow the page, from the next drawing on.
  restyle() {
    for (const plot of this.plots.values()) plot.key = "";
  }
}

// The first and the last moment of the axis of time; uPlot's own choice for a single moment is years.
function span(chart, from, to) {
  const [first] = chart.data[0];
  return chart.data[0].length > 1 ? [from, Math.max(to, from + LEAST_SECONDS)] : [first, first + LEAST_SECONDS];
}

function last(list) {
  for (let place = list.length - 1; place >= 0; place--) if (list[place] !== null) return list[place];
  return null;
}

function shown(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(3))) : "–";
}
