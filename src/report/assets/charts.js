// The moving parts of every page: the theme switch, and memory over the step.
//
// Data arrives as JSON in <script type="application/json"> inside the chart's own element. Nothing
// here parses text as HTML: every string from the data goes through textContent, so a hostile name
// stays a name.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  function draw(tag, attributes, text) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // The same words as format_bytes() in base/units.
  function bytes(count) {
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let value = count;
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit + 1 < names.length) {
      value /= 1024;
      unit += 1;
    }
    return value.toFixed(unit === 0 ? 0 : Math.abs(value) < 100 ? 2 : 1) + " " + names[unit];
  }

  // Round numbers of bytes for an axis up to `most`, at most six.
  function ticks(most) {
    const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(most, 1)) / Math.log(1024)));
    const raw = most / unit / 5;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power * unit;
    const values = [];
    for (let value = 0; value <= most * 1.0001; value += step) values.push(value);
    return values;
  }

  function themeSwitch() {
    const button = document.querySelector("[data-theme-toggle]");
    if (!button) return;
    const root = document.documentElement;
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    const current = () => root.dataset.theme || (dark.matches ? "dark" : "light");
    const label = () => {
      const other = current() === "dark" ? "light" : "dark";
      button.textContent = other === "dark" ? "Dark" : "Light";
      button.setAttribute("aria-label", "Switch to the " + other + " theme");
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      label();
    });
    dark.addEventListener("change", label);
    label();
  }

  // Memory over the step: stacked by component, one column of `points` each.
  class StepChart {
    constructor(host, data) {
      this.host = host;
      this.data = data;
      this.count = data.event.length;
      this.tops = this.stack();
      const highest = Math.max(...this.tops[this.tops.length - 1]);
      // A limit far above everything would press the picture flat: it is said, not drawn.
      this.limitIsFar = (data.limit_bytes || 0) > 3 * highest;
      this.most = this.limitIsFar ? highest * 1.25 : Math.max(data.limit_bytes || 0, highest) * 1.06;
      this.at = data.peak;
      this.tip = make("div", { class: "tip", role: "status", hidden: "" });
      this.svg = draw("svg", {
        role: "img", tabindex: "0",
        "aria-label": data.description + " Use the arrow keys to move, P for the peak.",
      });
      host.append(this.svg, this.tip);
      this.listen();
      new ResizeObserver(() => this.layout()).observe(host);
      this.layout();
    }

    // tops[s][i]: the upper edge of series s at point i.
    stack() {
      const tops = [];
      let below = new Array(this.count).fill(0);
      for (const series of this.data.series) {
        const top = below.map((value, i) => value + series.bytes[i]);
        tops.push(top);
        below = top;
      }
      return tops;
    }

    x(i) {
      const { event } = this.data;
      const first = event[0];
      const span = Math.max(1, event[this.count - 1] - first);
      return this.left + ((event[i] - first) / span) * (this.width - this.left - this.right);
    }

    y(value) {
      return this.height - this.bottom - (value / this.most) * (this.height - this.top - this.bottom);
    }

    layout() {
      const width = Math.round(this.host.clientWidth);
      if (width === 0 || width === this.width) return;
      this.width = width;
      this.height = width < 560 ? 300 : 400;
      this.left = 64;
      this.right = 8;
      this.top = 22;
      this.bottom = 30;
      this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
      this.svg.replaceChildren();
      this.hatch();
      this.phases();
      this.axis();
      this.layers();
      this.limit();
      this.peak();
      this.cursor = draw("line", { class: "cursor", y1: this.top, y2: this.height - this.bottom });
      this.cursor.style.display = "none";
      this.svg.append(this.cursor);
      this.tip.hidden = true;
    }

    hatch() {
      const defs = draw("defs", {});
      const pattern = draw("pattern", {
        id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse",
        patternTransform: "rotate(45)",
      });
      const ground = draw("rect", { width: 6, height: 6 });
      ground.style.fill = "var(--cached_unused)";
      const stroke = draw("rect", { width: 1.5, height: 6 });
      stroke.style.fill = "var(--hatch)";
      pattern.append(ground, stroke);
      defs.append(pattern);
      this.svg.append(defs);
    }

    // Every other phase gets a ground of its own, and each its name below where there is room.
    phases() {
      const { phase, labels } = this.data;
      const bands = [];
      let begin = 0;
      for (let i = 1; i <= this.count; i += 1) {
        if (i < this.count && phase[i] === phase[begin]) continue;
        const from = this.x(begin);
        const to = i < this.count ? this.x(i) : this.width - this.right;
        if (bands.length % 2 === 1) {
          this.svg.append(draw("rect", {
            class: "phase", x: from, y: this.top, width: Math.max(0, to - from),
            height: this.height - this.top - this.bottom,
          }));
        }
        bands.push({ from, to, name: labels[phase[begin]] || "" });
        begin = i;
      }
      this.phaseNames(bands);
    }

    // Widest bands first; a name that would run into another is left to the tooltip.
    phaseNames(bands) {
      const taken = [];
      for (const band of bands.sort((a, b) => (b.to - b.from) - (a.to - a.from))) {
        const half = band.name.length * 3.4 + 4;
        const middle = Math.min(Math.max((band.from + band.to) / 2, this.left + half),
          this.width - this.right - half);
        if (taken.some((other) => Math.abs(other.middle - middle) < other.half + half)) continue;
        taken.push({ middle, half });
        this.svg.append(draw("text", {
          x: middle, y: this.height - 10, "text-anchor": "middle",
        }, band.name));
      }
    }

    axis() {
      for (const value of ticks(this.most)) {
        const y = this.y(value);
        this.svg.append(
          draw("line", { class: "axis", x1: this.left, x2: this.width - this.right, y1: y, y2: y }),
          draw("text", { x: this.left - 8, y: y + 4, "text-anchor": "end" },
            value === 0 ? "0" : bytes(value).replace(/\.?0+ /, " ")));
      }
    }

    // A value holds until the next event: edges are steps.
    edge(values, backwards) {
      const path = [];
      const add = (i, value) => path.push(this.x(i).toFixed(1) + " " + this.y(value).toFixed(1));
      if (!backwards) {
        for (let i = 0; i < this.count; i += 1) {
          if (i > 0) add(i, values[i - 1]);
          add(i, values[i]);
        }
      } else {
        for (let i = this.count - 1; i >= 0; i -= 1) {
          add(i, values[i]);
          if (i > 0) add(i, values[i - 1]);
        }
      }
      return path;
    }

    layers() {
      const zero = new Array(this.count).fill(0);
      this.data.series.forEach((series, s) => {
        const outline = this.edge(this.tops[s], false)
          .concat(this.edge(s === 0 ? zero : this.tops[s - 1], true));
        const layer = draw("path", { d: "M" + outline.join("L") + "Z" });
        const hatched = series.key === "cached_unused";
        layer.style.fill = hatched ? "url(#hatch)" : `var(--${series.key})`;
        this.svg.append(layer);
      });
    }

    limit() {
      if (!this.data.limit_bytes) return;
      if (this.limitIsFar) {
        this.svg.append(draw("text", { class: "limittext halo", x: this.left + 6, y: this.top + 14 },
          "\u2191 " + this.data.limit_label + ", far above this scale"));
        return;
      }
      const y = this.y(this.data.limit_bytes);
      this.svg.append(
        draw("line", { class: "limitline", x1: this.left, x2: this.width - this.right, y1: y, y2: y }),
        draw("text", { class: "limittext halo", x: this.left + 6, y: y - 6 },
          this.data.limit_label));
    }

    peak() {
      const i = this.data.peak;
      const x = this.x(i);
      const y = this.y(this.data.allocated[i]);
      const rightHalf = x > this.width / 2;
      this.svg.append(
        draw("line", { class: "peakline", x1: x, x2: x, y1: y, y2: this.height - this.bottom }),
        draw("circle", { class: "peakdot", cx: x, cy: y, r: 5 }),
        draw("text", {
          class: "peaktext halo", x: x + (rightHalf ? -10 : 10), y: Math.max(y - 8, this.top + 6),
          "text-anchor": rightHalf ? "end" : "start",
        }, "peak " + bytes(this.data.allocated[i])));
    }

    listen() {
      const point = (clientX) => {
        const box = this.svg.getBoundingClientRect();
        this.show(this.nearest(((clientX - box.left) / box.width) * this.width));
      };
      this.svg.addEventListener("pointermove", (event) => point(event.clientX));
      this.svg.addEventListener("pointerdown", (event) => point(event.clientX));
      this.svg.addEventListener("pointerleave", () => this.hide());
      this.svg.addEventListener("focus", () => {
        if (this.svg.matches(":focus-visible")) this.show(this.at);
      });
      this.svg.addEventListener("blur", () => this.hide());
      this.svg.addEventListener("keydown", (event) => {
        const last = this.count - 1;
        const moves = {
          ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: 0, End: last,
          PageUp: this.at - 25, PageDown: this.at + 25, p: this.data.peak, P: this.data.peak,
        };
        if (event.key === "Escape") this.hide();
        if (!(event.key in moves)) return;
        event.preventDefault();
        this.show(Math.min(last, Math.max(0, moves[event.key])));
      });
    }

    // The last point at or before x, or the peak when the pointer is within six pixels of it.
    nearest(x) {
      if (Math.abs(this.x(this.data.peak) - x) < 6) return this.data.peak;
      let low = 0;
      let high = this.count - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.x(middle) <= x) low = middle; else high = middle - 1;
      }
      return low;
    }

    hide() {
      this.tip.hidden = true;
      this.cursor.style.display = "none";
    }

    show(i) {
      this.at = i;
      const { data } = this;
      const x = this.x(i);
      this.cursor.setAttribute("x1", x);
      this.cursor.setAttribute("x2", x);
      this.cursor.style.display = "";
      const table = make("table", {});
      for (let s = data.series.length - 1; s >= 0; s -= 1) {
        if (data.series[s].bytes[i] === 0) continue;
        const hatched = data.series[s].key === "cached_unused";
        const swatch = make("span", { class: hatched ? "swatch hatched" : "swatch" });
        swatch.style.backgroundColor = `var(--${data.series[s].key})`;
        table.append(make("tr", {}, make("td", {}, swatch, data.series[s].label),
          make("td", {}, bytes(data.series[s].bytes[i]))));
      }
      const labels = data.labels;
      const place = [labels[data.phase[i]], labels[data.module[i]]].filter(Boolean).join(" · ");
      this.tip.replaceChildren(
        make("strong", {}, (i === data.peak ? "Peak: " : "") + bytes(data.allocated[i]) + " allocated"),
        make("div", {}, place),
        make("div", { class: "op" }, (labels[data.op[i]] || "") + " · event " + data.event[i]),
        table);
      this.tip.hidden = false;
      this.place(x);
    }

    // Beside the cursor, on the side that has room, inside the chart.
    place(x) {
      const scale = this.host.clientWidth / this.width;
      const wide = this.tip.offsetWidth;
      const right = x * scale + 16;
      const left = x * scale - 16 - wide;
      const fits = right + wide <= this.host.clientWidth;
      this.tip.style.left = Math.max(0, fits ? right : left) + "px";
      this.tip.style.top = this.top + "px";
    }
  }

  // For scripts that come behind this one in a page.
  globalThis.headroomCharts = { make, bytes };

  themeSwitch();
  for (const host of document.querySelectorAll("[data-chart='step']")) {
    const source = host.querySelector("script[type='application/json']");
    if (source) new StepChart(host, JSON.parse(source.textContent));
  }
})();
