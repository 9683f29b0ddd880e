// The address map: blocks as rectangles of lifetime and address, as recorded and as planned. What
// is in view, what is pointed at, colours, and keys; map_panel.js draws.
//
// Every string from the data goes through textContent.
"use strict";
(() => {
  const { GUTTER, NOTHING, HELD, FIRST_CELL, make, bytes, commas, columns, Colours, Panel } =
    globalThis.headroomMap;
  const SITES = 8; // call sites with a colour of their own

  class AddressMap {
    constructor(host, data) {
      this.host = host;
      this.data = data;
      this.blocks = columns(data.blocks);
      this.curve = columns(data.curve);
      this.held = columns(data.held);
      this.iterations = columns(data.iterations).start;
      this.mostUnits = Math.max(1, data.recorded_units, data.planned_units) * 1.02;
      this.mostBytes = 1;
      for (const name of ["allocated", "reserved"]) {
        for (const value of this.curve[name]) this.mostBytes = Math.max(this.mostBytes, value);
      }
      this.mostBytes = Math.max(this.mostBytes, data.planned_units * data.unit);
      this.from = 0;
      this.to = data.moments;
      this.pointed = NOTHING;
      this.selected = NOTHING;
      this.by = data.kinds.length > 1 ? "kind" : "site";
      this.findSites();
      this.build();
      this.listen();
      this.recolour();
      new ResizeObserver(() => this.layout()).observe(host);
      this.layout();
    }

    // Call sites by bytes and time; the first few have a colour of their own.
    findSites() {
      const { blocks } = this;
      const { stacks, texts } = this.data.names;
      const area = new Map();
      this.siteOf = new Int32Array(blocks.count);
      for (let i = 0; i < blocks.count; i += 1) {
        const site = stacks[blocks.stack[i]] ? stacks[blocks.stack[i]][0] : 0;
        this.siteOf[i] = site;
        area.set(site, (area.get(site) || 0) + blocks.size[i] * blocks.span[i]);
      }
      this.sites = [...area].sort((a, b) => b[1] - a[1]).slice(0, SITES)
        .map(([site], rank) => ({ site, label: texts[site] || "(no call stack)",
          key: "site-" + rank }));
      this.rankOf = new Map(this.sites.map((entry, rank) => [entry.site, rank]));
      this.hasSites = area.size > 1;
    }

    build() {
      const { data } = this;
      const button = (label, title, act) => {
        const node = make("button", { type: "button", title }, label);
        node.addEventListener("click", act);
        return node;
      };
      const middle = (factor) => () => {
        this.zoom(this.panels[0], factor, 0.5, 0.5, true, true);
      };
      this.choice = make("select", {}, make("option", { value: "kind" }, "class"));
      if (this.hasSites) this.choice.append(make("option", { value: "site" }, "call site"));
      this.choice.value = this.by;
      this.tools = make("div", { class: "tools" },
        make("label", {}, "Colour by ", this.choice),
        button("\u2212", "Zoom out", middle(1 / 1.6)), button("+", "Zoom in", middle(1.6)),
        button("All", "Show the whole recording", () => this.showAll()),
        button("Peak", "Show the time around the peak", () => this.showPeak()),
        make("span", { class: "hint" },
          "Drag to move, Ctrl and wheel (or pinch) to zoom, click a block to keep it."));
      this.panels = [];
      const none = columns({ count: 0, start: "", span: "", offset: "", size: "", blocks: "" });
      if (data.has_recording) {
        const recorded = this.blocks.recorded.map((value) => value - 1);
        this.panels.push(new Panel(this, "recorded",
          (data.is_simulated ? "As PyTorch places them: " : "As recorded: ") + bytes(data.recorded_units * data.unit) + " of addresses.", recorded,
          data.merged_recorded ? columns(data.merged_recorded) : none, this.held));
      }
      this.panels.push(new Panel(this, "planned",
        "As planned: " + bytes(data.planned_units * data.unit) + ".", this.blocks.planned,
        data.merged_planned ? columns(data.merged_planned) : none, null));
      this.grid = make("div", { class: "panels" }, ...this.panels.map((panel) => panel.figure));
      this.legend = make("ul", { class: "legend" });
      this.detail = make("div", { class: "detail", role: "status" });
      this.tip = make("div", { class: "tip", hidden: "" });
      this.host.append(this.tools, this.grid, this.legend);
      if (data.merged_count > 0) {
        this.host.append(make("p", { class: "soft" }, commas(data.merged_count)
          + " of the blocks, those that would be seen least, are merged into grey cells."));
      }
      this.host.append(this.detail, this.tip);
      this.describe(NOTHING);
    }

    recolour() {
      this.colours = new Colours();
      const { colours, blocks } = this;
      this.words = { ground: colours.word("map-ground"), held: colours.word("cached_unused"),
        hatch: colours.word("hatch"), merged: colours.word("merged") };
      const entries = this.by === "kind" ? this.data.kinds
        : [...this.sites, { label: "other call sites", key: "site-other" }];
      const plain = entries.map((entry) => colours.word(entry.key));
      const edges = entries.map((entry) => colours.word(entry.key, 0.72));
      const dim = colours.word("map-dim");
      this.colourOf = new Uint32Array(blocks.count);
      this.edgeOf = new Uint32Array(blocks.count);
      for (let i = 0; i < blocks.count; i += 1) {
        const entry = this.entryOf(i);
        const isDim = this.only !== undefined && this.only !== entry;
        this.colourOf[i] = isDim ? dim : plain[entry];
        this.edgeOf[i] = isDim ? this.words.hatch : edges[entry];
      }
      this.showLegend(entries);
      this.dirty();
    }

    entryOf(i) {
      if (this.by === "kind") return this.blocks.kind[i];
      const rank = this.rankOf.get(this.siteOf[i]);
      return rank === undefined ? this.sites.length : rank;
    }

    showLegend(entries) {
      const used = new Set();
      for (let i = 0; i < this.blocks.count; i += 1) used.add(this.entryOf(i));
      const shown = [...entries.keys()].filter((index) => used.has(index));
      this.legend.replaceChildren(...shown.map((index) => {
        const entry = entries[index];
        const swatch = make("span", { class: "swatch" });
        swatch.style.backgroundColor = `var(--${entry.key})`;
        const button = make("button", { type: "button",
          "aria-pressed": this.only === index ? "true" : "false",
          title: "Show these alone" }, swatch, entry.label);
        button.addEventListener("click", () => {
          this.only = this.only === index ? undefined : index;
          this.recolour();
        });
        return make("li", {}, button);
      }));
      const note = (key, label, isHatched) => {
        const swatch = make("span", { class: isHatched ? "swatch hatched" : "swatch" });
        swatch.style.backgroundColor = `var(--${key})`;
        this.legend.append(make("li", {}, swatch, label));
      };
      if (this.data.has_recording) note("cached_unused", "reserved, in no block", true);
      if (this.data.merged_count > 0) note("merged", "merged", false);
      const begins = this.iterations.length === 0 ? ""
        : this.iterations.length === 1 ? "; an iteration begins at the thin line"
          : "; " + commas(this.iterations.length) + " iterations begin at the thin lines";
      this.legend.append(make("li", {}, "beneath: allocated"
        + (this.data.has_recording ? ", and a line for what is held" : "")
        + ", by entries of the recording" + begins));
    }

    layout() {
      const width = Math.floor(this.host.clientWidth);
      if (width === 0 || width === this.laidOut) return;
      this.laidOut = width;
      const two = this.panels.length > 1 && width >= 1000;
      this.grid.classList.toggle("two", two);
      const each = two ? Math.floor((width - 24) / 2) : width;
      const height = width < 560 ? 260 : two ? 440 : 340;
      const scale = Math.min(window.devicePixelRatio || 1, 2);
      for (const panel of this.panels) panel.resize(each, height, scale);
      this.draw();
    }

    dirty() {
      if (this.pending || !this.laidOut) return;
      this.pending = requestAnimationFrame(() => {
        this.pending = 0;
        this.draw();
      });
    }

    draw() {
      const before = performance.now();
      for (const panel of this.panels) {
        panel.paint();
        panel.paintOverlay();
        panel.paintCurve();
      }
      this.host.dataset.frameMs = (performance.now() - before).toFixed(2);
      this.host.dataset.painted = this.panels.map((panel) => panel.painted).join(" ");
    }

    // The highest value in each of `count` columns of the time in view: values are steps.
    highest(values, count) {
      const { moment } = this.curve;
      const result = new Array(count).fill(0);
      let i = 0;
      let high = moment.length;
      const from = this.from;
      while (i + 1 < high) { // the last point at or before `from`
        const middle = (i + high) >> 1;
        if (moment[middle] <= from) i = middle; else high = middle;
      }
      for (let x = 0; x < count; x += 1) {
        const end = from + ((x + 1) / count) * (this.to - from);
        let most = values[i] || 0;
        while (i + 1 < moment.length && moment[i + 1] < end) {
          i += 1;
          most = Math.max(most, values[i]);
        }
        result[x] = most;
      }
      return result;
    }

    showTime(from, to) {
      const span = Math.min(Math.max(to - from, 4), this.data.moments);
      this.from = Math.min(Math.max(from, 0), this.data.moments - span);
      this.to = this.from + span;
    }

    showAll() {
      this.showTime(0, this.data.moments);
      for (const panel of this.panels) panel.show(0, this.mostUnits);
      this.dirty();
    }

    showPeak() {
      const span = Math.min(this.to - this.from, this.data.moments / 20);
      this.showTime(this.data.peak - span / 2, this.data.peak + span / 2);
      this.dirty();
    }

    // About a place of a panel, given as shares of it. The other keeps its middle and its scale.
    zoom(panel, factor, shareX, shareY, isTime, isAddress) {
      if (isTime) {
        const at = this.from + shareX * (this.to - this.from);
        this.showTime(at - (at - this.from) / factor, at + (this.to - at) / factor);
      }
      if (isAddress) {
        for (const each of this.panels) {
          const share = each === panel ? 1 - shareY : 0.5;
          const at = each.low + share * (each.high - each.low);
          each.show(at - (at - each.low) / factor, at + (each.high - at) / factor);
        }
      }
      this.hideTip();
      this.dirty();
    }

    pan(panel, shareX, shareY) {
      const time = shareX * (this.to - this.from);
      this.showTime(this.from + time, this.to + time);
      const units = shareY * (panel.high - panel.low);
      panel.show(panel.low + units, panel.high + units);
      this.dirty();
    }

    // Both panels around a block, so that it is seen.
    frame(id) {
      const { blocks } = this;
      const span = Math.max(blocks.span[id] * 1.6, 24);
      const middle = (blocks.start[id] + blocks.end[id]) / 2;
      this.showTime(middle - span / 2, middle + span / 2);
      for (const panel of this.panels) {
        if (panel.offsets[id] < 0) continue;
        const high = Math.max(blocks.size[id] * 12, this.mostUnits / 400);
        const at = panel.offsets[id] + blocks.size[id] / 2;
        panel.show(at - high / 2, at + high / 2);
      }
      this.dirty();
    }

    select(id) {
      this.selected = id;
      this.describe(id);
      this.dirty();
    }

    seconds(moment) {
      const { seconds, moments } = this.data;
      if (seconds.length < 2) return null;
      const at = Math.min(Math.max((moment / moments) * (seconds.length - 1), 0), seconds.length - 1);
      const i = Math.min(Math.floor(at), seconds.length - 2);
      return seconds[i] + (at - i) * (seconds[i + 1] - seconds[i]);
    }

    life(id) {
      const { blocks, data } = this;
      const end = blocks.end[id] >= data.moments ? "the end" : commas(blocks.end[id]);
      const start = blocks.start[id] === 0 ? "the start" : commas(blocks.start[id]);
      const lasts = this.seconds(blocks.end[id]) - this.seconds(blocks.start[id]);
      const time = data.seconds.length > 1 ? ", about " + (lasts < 0.1
        ? (lasts * 1000).toFixed(2) + " ms" : lasts.toFixed(2) + " s") : "";
      return "from " + start + " to " + end + " (" + commas(blocks.span[id]) + " moments" + time + ")";
    }

    describe(id) {
      if (id < 0) {
        this.detail.replaceChildren(make("p", { class: "soft" },
          "Point at a block to see its size, its lifetime and who asked for it."));
        return;
      }
      const { blocks, data } = this;
      const size = blocks.size[id] * data.unit;
      const row = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
      const facts = make("dl", {},
        row("size", bytes(size) + (blocks.slack[id] > 0
          ? ", " + commas(size - blocks.slack[id]) + " B asked for" : ", " + commas(size) + " B")),
        row("lives", this.life(id)),
        row("class", data.kinds[blocks.kind[id]].label));
      for (const panel of this.panels) {
        if (panel.offsets[id] < 0) continue;
        facts.append(row(panel.name, "at " + bytes(panel.offsets[id] * data.unit)));
      }
      const [site, ...frames] = data.names.stacks[blocks.stack[id]] || [0];
      const list = make("ol", {});
      for (const frame of frames) list.append(make("li", {}, make("code", {}, data.names.texts[frame])));
      this.detail.replaceChildren(
        make("strong", {}, data.names.texts[site] || "block " + commas(id)), facts, list);
    }

    pointAt(panel, event) {
      const id = panel.at(event.clientX, event.clientY);
      const before = this.pointed;
      this.pointed = id >= 0 ? id : NOTHING;
      if (before !== this.pointed) for (const each of this.panels) each.paintOverlay();
      if (id === NOTHING) return this.hideTip();
      const lines = [];
      if (id >= 0) {
        const { blocks, data } = this;
        const stack = data.names.stacks[blocks.stack[id]] || [0];
        lines.push(make("strong", {}, bytes(blocks.size[id] * data.unit)));
        lines.push(make("div", {}, this.life(id)));
        lines.push(make("div", { class: "op" }, data.names.texts[stack[0]] || ""));
        if (this.selected < 0) this.describe(id);
      } else if (id === HELD) {
        lines.push(make("strong", {}, "Reserved by PyTorch, in no block"));
      } else {
        const cells = panel.cells;
        lines.push(make("strong", {}, "Up to " + commas(cells.blocks[FIRST_CELL - id])
          + " small blocks, merged"));
      }
      this.tip.replaceChildren(...lines);
      this.tip.hidden = false;
      const box = this.host.getBoundingClientRect();
      const x = event.clientX - box.left;
      const wide = this.tip.offsetWidth;
      const left = x + 18 + wide <= box.width ? x + 18 : x - 18 - wide;
      this.tip.style.left = Math.max(0, Math.min(left, box.width - wide)) + "px";
      this.tip.style.top = event.clientY - box.top + 18 + "px";
      return undefined;
    }

    hideTip() {
      this.tip.hidden = true;
      if (this.pointed === NOTHING) return;
      this.pointed = NOTHING;
      if (this.selected < 0) this.describe(NOTHING);
      for (const panel of this.panels) panel.paintOverlay();
    }

    listen() {
      this.choice.addEventListener("change", () => {
        this.by = this.choice.value;
        this.only = undefined;
        this.recolour();
      });
      new MutationObserver(() => this.recolour())
        .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
      window.matchMedia("(prefers-color-scheme: dark)")
        .addEventListener("change", () => this.recolour());
      for (const panel of this.panels) this.listenTo(panel);
    }

    listenTo(panel) {
      const { overlay } = panel;
      const pointers = new Map();
      let moved = 0;
      overlay.addEventListener("pointerdown", (event) => {
        pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
        moved = 0;
        if (overlay.setPointerCapture && event.isTrusted) overlay.setPointerCapture(event.pointerId);
      });
      overlay.addEventListener("pointermove", (event) => {
        const last = pointers.get(event.pointerId);
        if (!last) {
          this.pointAt(panel, event);
          return;
        }
        const others = [...pointers].filter(([id]) => id !== event.pointerId);
        const dx = event.clientX - last.x;
        const dy = event.clientY - last.y;
        if (others.length > 0) {
          const other = others[0][1];
          const distance = (point) => Math.hypot(point.x - other.x, point.y - other.y);
          const factor = distance({ x: event.clientX, y: event.clientY }) / Math.max(1, distance(last));
          this.zoomAt(panel, factor, (event.clientX + other.x) / 2, (event.clientY + other.y) / 2, event);
        } else {
          this.pan(panel, -dx / panel.width, dy / panel.height);
        }
        moved += Math.abs(dx) + Math.abs(dy);
        if (moved > 4) this.hideTip();
        pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      });
      const end = (event) => {
        if (pointers.delete(event.pointerId) && moved <= 4 && event.type === "pointerup") {
          const id = panel.at(event.clientX, event.clientY);
          this.select(id >= 0 && id !== this.selected ? id : NOTHING);
        }
      };
      overlay.addEventListener("pointerup", end);
      overlay.addEventListener("pointercancel", end);
      overlay.addEventListener("pointerleave", () => this.hideTip());
      overlay.addEventListener("dblclick", (event) => {
        const id = panel.at(event.clientX, event.clientY);
        if (id >= 0) {
          this.select(id);
          this.frame(id);
        }
      });
      overlay.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey && document.activeElement !== overlay) return;
        event.preventDefault();
        this.zoomAt(panel, Math.exp(-event.deltaY * 0.0022), event.clientX, event.clientY, event);
      }, { passive: false });
      overlay.addEventListener("keydown", (event) => this.key(panel, event));
    }

    // With shift the time alone, with alt the addresses alone.
    zoomAt(panel, factor, clientX, clientY, event) {
      const box = panel.overlay.getBoundingClientRect();
      this.zoom(panel, factor, (clientX - box.left - GUTTER) / panel.width,
        (clientY - box.top) / panel.height, !event.altKey, !event.shiftKey);
    }

    key(panel, event) {
      if (event.ctrlKey || event.metaKey) return;
      const step = (by) => {
        const last = this.blocks.count - 1;
        if (last < 0) return;
        const from = this.selected < 0 ? this.firstInView() : this.selected + by;
        this.select(Math.min(last, Math.max(0, from)));
        this.keepInView(this.selected);
      };
      const acts = {
        ArrowLeft: () => (event.shiftKey ? step(-1) : this.pan(panel, -0.15, 0)),
        ArrowRight: () => (event.shiftKey ? step(1) : this.pan(panel, 0.15, 0)),
        ArrowUp: () => this.pan(panel, 0, 0.15),
        ArrowDown: () => this.pan(panel, 0, -0.15),
        "+": () => this.zoom(panel, 1.5, 0.5, 0.5, true, true),
        "=": () => this.zoom(panel, 1.5, 0.5, 0.5, true, true),
        "-": () => this.zoom(panel, 1 / 1.5, 0.5, 0.5, true, true),
        0: () => this.showAll(),
        Home: () => this.showAll(),
        p: () => this.showPeak(),
        P: () => this.showPeak(),
        f: () => this.selected >= 0 && this.frame(this.selected),
        F: () => this.selected >= 0 && this.frame(this.selected),
        Escape: () => this.select(NOTHING),
      };
      if (!(event.key in acts)) return;
      event.preventDefault();
      acts[event.key]();
    }

    firstInView() {
      const { start } = this.blocks;
      let low = 0;
      let high = start.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (start[middle] < this.from) low = middle + 1; else high = middle;
      }
      return Math.min(low, start.length - 1);
    }

    keepInView(id) {
      const { blocks } = this;
      if (blocks.end[id] <= this.from || blocks.start[id] >= this.to) {
        const span = this.to - this.from;
        this.showTime(blocks.start[id] - span / 2, blocks.start[id] + span / 2);
      }
      for (const panel of this.panels) {
        const at = panel.offsets[id];
        if (at < 0 || (at < panel.high && at + blocks.size[id] > panel.low)) continue;
        const span = panel.high - panel.low;
        panel.show(at - span / 2, at + span / 2);
      }
      this.dirty();
    }
  }

  for (const host of document.querySelectorAll("[data-chart='map']")) {
    const source = host.querySelector("script[type='application/json']");
    if (!source) continue;
    const before = performance.now();
    host.map = new AddressMap(host, JSON.parse(source.textContent));
    host.dataset.firstPaintMs = (performance.now() - before).toFixed(1);
  }
})();
