// A run's timeline: rows of host threads and streams over time on one canvas, gaps marked.
//
// The marks of a row are in order of start, so what is in view is found by halving, and so is the
// next mark that reaches beyond a pixel that is drawn. So a frame costs a row its width, however
// many marks are in view. Every string from the data goes through textContent.
"use strict";
(() => {
  const { make } = globalThis.headroomCharts;
  const { columns, ticks, Colours } = globalThis.headroomMap;
  const GUTTER = 132;
  const AXIS = 26;
  const HEIGHTS = { host: 18, calls: 12, stream: 26, gaps: 12 };
  const SPACE = 5;
  const NEAREST_NS = 200; // the least that can be in view

  function time(ns) {
    const [unit, name] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : [1e3, "us"];
    return (ns / unit).toLocaleString("en-US", { maximumFractionDigits: 3 }) + " " + name;
  }

  class Timeline {
    constructor(host, data) {
      this.host = host;
      this.data = data;
      let top = AXIS;
      this.rows = data.rows.map((row) => {
        const marks = columns(row.marks);
        // A mark may reach beyond its successor: until when a row was busy before each mark.
        const until = new Float64Array(marks.count);
        for (let i = 0, last = 0; i < marks.count; i += 1) {
          last = Math.max(last, marks.start[i] + marks.span[i]);
          until[i] = last;
        }
        const placed = { ...row, marks, until, top, height: HEIGHTS[row.kind] };
        top += placed.height + SPACE;
        return placed;
      });
      this.height = top;
      this.from = 0;
      this.to = Math.max(1, data.length_ns);
      this.build();
      this.listen();
      this.recolour();
      new ResizeObserver(() => this.layout()).observe(host);
      this.layout();
    }

    build() {
      const button = (label, title, act) => {
        const node = make("button", { type: "button", title }, label);
        node.addEventListener("click", act);
        return node;
      };
      const tools = make("div", { class: "tools" },
        button("\u2212", "Zoom out", () => this.zoom(1 / 1.6, 0.5)),
        button("+", "Zoom in", () => this.zoom(1.6, 0.5)),
        button("All", "Show the whole run", () => this.show(0, this.data.length_ns)),
        button("Longest gap", "Show the longest time in which the device did nothing",
          () => this.showGap()),
        make("span", { class: "hint" }, "Drag to move, Ctrl and wheel to zoom."));
      this.canvas = make("canvas", {
        class: "overlay timeline", tabindex: "0", role: "img",
        "aria-label": "Timeline of host threads and streams. Arrow keys move, plus and minus zoom, "
          + "0 shows all, G the longest gap.",
      });
      this.canvas.style.position = "static";
      this.tip = make("div", { class: "tip", hidden: "" });
      this.host.append(tools, make("div", { class: "stage" }, this.canvas), this.legend(), this.tip);
      if (this.data.left_out > 0) {
        this.host.append(make("p", { class: "soft" }, this.data.left_out.toLocaleString("en-US")
          + " marks are left out: the shortest, and threads beyond the rows of a page."));
      }
    }

    legend() {
      const entries = [...this.data.groups.filter((group) => group.is_used),
        { title: "idle: the next launch had not come", key: "no" },
        { title: "idle: launched, and not yet begun", key: "at-risk" },
        { title: "idle: what it waits for is not in the trace", key: "cached_unused" }];
      return make("ul", { class: "legend" }, ...entries.map(({ title, key }) => {
        const swatch = make("span", { class: "swatch" });
        swatch.style.backgroundColor = `var(--${key})`;
        return make("li", {}, swatch, title);
      }));
    }

    recolour() {
      this.colours = new Colours();
      const { colours } = this;
      this.ofGroup = this.data.groups.map((group) => colours.css(group.key));
      this.ofGap = [colours.css("no"), colours.css("at-risk"), colours.css("cached_unused")];
      this.ofHost = { host: colours.css("workspaces"), calls: colours.css("accent") };
      this.dirty();
    }

    layout() {
      this.width = Math.max(200, this.host.clientWidth);
      this.scale = window.devicePixelRatio || 1;
      this.canvas.width = Math.round(this.width * this.scale);
      this.canvas.height = Math.round(this.height * this.scale);
      this.canvas.style.width = this.width + "px";
      this.canvas.style.height = this.height + "px";
      this.dirty();
    }

    dirty() {
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.draw(); });
    }

    x(ns) { return GUTTER + ((ns - this.from) / (this.to - this.from)) * (this.width - GUTTER); }

    colour(row, i) {
      if (row.kind === "gaps") return this.ofGap[row.marks.group[i]];
      return row.kind === "stream" ? this.ofGroup[row.marks.group[i]] : this.ofHost[row.kind];
    }

    // The first mark that can reach into what is right of `ns`.
    first(row, ns) {
      let low = 0;
      let high = row.marks.count;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (row.until[middle] <= ns) low = middle + 1; else high = middle;
      }
      return low;
    }

    draw() {
      const began = performance.now();
      const context = this.canvas.getContext("2d");
      context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
      context.clearRect(0, 0, this.width, this.height);
      this.drawAxis(context);
      context.save();
      context.beginPath();
      context.rect(GUTTER, AXIS, this.width - GUTTER, this.height);
      context.clip();
      this.painted = 0;
      this.shadeGaps(context);
      for (const row of this.rows) this.drawRow(context, row);
      context.restore();
      this.drawTitles(context);
      this.host.dataset.frameMs = (performance.now() - began).toFixed(2);
      if (!this.host.dataset.firstPaintMs) this.host.dataset.firstPaintMs = this.host.dataset.frameMs;
      this.host.dataset.painted = String(this.painted);
    }

    drawAxis(context) {
      const { colours } = this;
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.lineWidth = 1;
      for (const value of ticks(this.from, this.to, (this.width - GUTTER) / 110)) {
        const x = this.x(value);
        context.strokeStyle = colours.css("line");
        context.beginPath();
        context.moveTo(x, AXIS - 6);
        context.lineTo(x, this.height);
        context.stroke();
        context.fillStyle = colours.css("soft");
        context.textAlign = x > this.width - 60 ? "right" : "left";
        context.fillText(time(value), x + (x > this.width - 60 ? -3 : 3), 9);
      }
      context.strokeStyle = colours.css("text");
      context.setLineDash([4, 3]);
      for (const start of this.data.steps) {
        const x = this.x(start);
        if (x < GUTTER || x > this.width) continue;
        context.beginPath();
        context.moveTo(x, AXIS - 8);
        context.lineTo(x, this.height);
        context.stroke();
      }
      context.setLineDash([]);
    }

    drawTitles(context) {
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillStyle = this.colours.css("soft");
      for (const row of this.rows) {
        const title = row.title.length > 18 ? row.title.slice(0, 17) + "\u2026" : row.title;
        context.fillText(title, GUTTER - 8, row.top + row.height / 2);
      }
    }

    // Where the device does nothing the streams have a ground of their own.
    shadeGaps(context) {
      const gaps = this.rows.find((row) => row.kind === "gaps");
      if (!gaps) return;
      context.globalAlpha = 0.13;
      this.eachVisible(gaps, (i, left, width) => {
        context.fillStyle = this.colour(gaps, i);
        context.fillRect(left, gaps.top + gaps.height, width, this.height);
      });
      context.globalAlpha = 1;
    }

    // Calls back with the marks in view, one for each pixel at most.
    eachVisible(row, act) {
      const { marks } = row;
      const ns = (this.to - this.from) / ((this.width - GUTTER) * this.scale);
      let i = this.first(row, this.from);
      while (i < marks.count && marks.start[i] < this.to) {
        const end = marks.start[i] + marks.span[i];
        const left = Math.max(GUTTER, this.x(marks.start[i]));
        const right = Math.min(this.width, this.x(end));
        act(i, left, Math.max(right - left, 1 / this.scale));
        // What ends within the pixel in which this one ends cannot be told from it.
        i = marks.span[i] > ns ? i + 1 : Math.max(i + 1, this.first(row, end + ns / 2));
      }
    }

    drawRow(context, row) {
      let colour = "";
      this.eachVisible(row, (i, left, width) => {
        const next = this.colour(row, i);
        if (next !== colour) {
          colour = next;
          context.fillStyle = colour;
        }
        context.fillRect(left, row.top, width > 3 ? width - 0.5 : width, row.height);
        this.painted += 1;
      });
    }

    show(from, to) {
      const span = Math.min(Math.max(to - from, NEAREST_NS), Math.max(this.data.length_ns, NEAREST_NS));
      this.from = Math.max(0, Math.min(from, this.data.length_ns - span));
      this.to = this.from + span;
      this.dirty();
    }

    zoom(factor, part) {
      const span = (this.to - this.from) / factor;
      const at = this.from + (this.to - this.from) * part;
      this.show(at - span * part, at - span * part + span);
    }

    pan(part) {
      const shift = (this.to - this.from) * part;
      this.show(this.from + shift, this.to + shift);
    }

    showGap() {
      const gaps = this.rows.find((row) => row.kind === "gaps");
      if (!gaps) return;
      let longest = 0;
      for (let i = 1; i < gaps.marks.count; i += 1) {
        if (gaps.marks.span[i] > gaps.marks.span[longest]) longest = i;
      }
      const start = gaps.marks.start[longest];
      const span = gaps.marks.span[longest];
      this.show(start - span / 2, start + span * 1.5);
    }

    at(clientX, clientY) {
      const box = this.canvas.getBoundingClientRect();
      const y = clientY - box.top;
      const row = this.rows.find((one) => y >= one.top && y < one.top + one.height);
      const x = clientX - box.left;
      if (!row || x < GUTTER) return null;
      const span = (this.to - this.from) / (this.width - GUTTER);
      const ns = this.from + (x - GUTTER) * span;
      for (let i = this.first(row, ns - span); i < row.marks.count; i += 1) {
        if (row.marks.start[i] > ns + span) break;
        if (row.marks.start[i] + row.marks.span[i] >= ns - span) return { row, i };
      }
      return null;
    }

    point(event) {
      const found = this.at(event.clientX, event.clientY);
      this.tip.hidden = !found;
      if (!found) return;
      const { row, i } = found;
      const group = row.kind === "stream" ? this.data.groups[row.marks.group[i]].title : row.title;
      this.tip.replaceChildren(
        make("strong", {}, this.data.names[row.marks.name[i]]),
        make("div", { class: "op" }, group),
        make("div", {}, time(row.marks.span[i]) + ", from " + time(row.marks.start[i])));
      const box = this.host.getBoundingClientRect();
      const wide = this.tip.offsetWidth;
      const left = Math.min(event.clientX - box.left + 14, this.host.clientWidth - wide - 4);
      this.tip.style.left = Math.max(0, left) + "px";
      this.tip.style.top = event.clientY - box.top + 16 + "px";
    }

    listen() {
      const { canvas } = this;
      let held = null;
      canvas.addEventListener("pointerdown", (event) => {
        held = event.clientX;
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointerup", () => { held = null; });
      canvas.addEventListener("pointermove", (event) => {
        if (held !== null) {
          this.pan((held - event.clientX) / (this.width - GUTTER));
          held = event.clientX;
          this.tip.hidden = true;
        } else {
          this.point(event);
        }
      });
      canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        const box = canvas.getBoundingClientRect();
        const part = (event.clientX - box.left - GUTTER) / (this.width - GUTTER);
        this.zoom(Math.exp(-event.deltaY / 300), Math.min(1, Math.max(0, part)));
      }, { passive: false });
      const keys = {
        ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2),
        "+": () => this.zoom(1.6, 0.5), "=": () => this.zoom(1.6, 0.5),
        "-": () => this.zoom(1 / 1.6, 0.5), 0: () => this.show(0, this.data.length_ns),
        g: () => this.showGap(), G: () => this.showGap(),
      };
      canvas.addEventListener("keydown", (event) => {
        const act = keys[event.key];
        if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        act();
      });
      new MutationObserver(() => this.recolour())
        .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
      window.matchMedia("(prefers-color-scheme: dark)")
        .addEventListener("change", () => this.recolour());
    }
  }

  for (const host of document.querySelectorAll("[data-chart='timeline']")) {
    try {
      const data = JSON.parse(host.querySelector("script").textContent);
      host.timeline = new Timeline(host, data);
    } catch (error) {
      host.append(make("p", { class: "missing" }, "The timeline cannot be drawn: " + error.message));
    }
  }
})();
