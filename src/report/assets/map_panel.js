// The pictures of an address map: what is in the data, and how a part of it becomes pixels.
//
// One pass over the blocks in view writes two arrays of a canvas's size: colours, which are put on
// the canvas as they are, and block numbers, in which pointing at a pixel looks up what lies there.
// Blocks do not overlap, so a pass costs the pixels plus the blocks, however many there are; chunks
// of blocks that lie outside of the view are passed over. A block thinner than a pixel still gets
// one. map.js, which comes behind this in a page, makes the map of them.
"use strict";
(() => {
  const GUTTER = 84; // for the labels of addresses
  const CURVE = 96; // pixels high
  const CHUNK = 512;
  const NOTHING = -1;
  const HELD = -2;
  const FIRST_CELL = -16; // merged cells count down from here

  const { make, bytes } = globalThis.headroomCharts;

  const commas = (count) => Math.round(count).toLocaleString("en-US");

  // A column of src/report/page/columns.h.
  function column(text, count) {
    const raw = atob(text);
    const values = new Float64Array(count);
    let at = 0;
    let last = 0;
    for (let i = 0; i < count; i += 1) {
      let zigzag = 0;
      let scale = 1;
      let byte;
      do {
        byte = raw.charCodeAt(at);
        at += 1;
        zigzag += (byte & 127) * scale;
        scale *= 128;
      } while (byte > 127);
      last += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
      values[i] = last;
    }
    return values;
  }

  function columns(table) {
    const read = {};
    for (const [name, value] of Object.entries(table)) {
      read[name] = typeof value === "string" ? column(value, table.count) : value;
    }
    if (read.start && read.span) read.end = read.start.map((start, i) => start + read.span[i]);
    return read;
  }

  // Steps of 1, 2 or 5 times a power of ten between `low` and `high`, about `most` of them.
  function ticks(low, high, most) {
    const raw = Math.max((high - low) / most, 1);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
    const values = [];
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) values.push(value);
    return values;
  }

  // The same in powers of two, with words whose unit is that of the step: neighbours differ.
  function byteTicks(low, high, most) {
    const step = 2 ** Math.ceil(Math.log2(Math.max((high - low) / most, 1)));
    const power = Math.min(3, Math.floor(Math.log2(step) / 10));
    const unit = ["B", "KiB", "MiB", "GiB"][power];
    const values = [];
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
      values.push([value, value === 0 ? "0" : commas(value / 1024 ** power) + " " + unit]);
    }
    return values;
  }

  class Colours {
    constructor() {
      this.pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      this.style = getComputedStyle(document.documentElement);
    }

    css(name) { return this.style.getPropertyValue("--" + name).trim() || "#888"; }

    // As a canvas's memory has it, on machines whose lowest byte comes first.
    word(name, shade) {
      this.pixel.fillStyle = this.css(name);
      this.pixel.fillRect(0, 0, 1, 1);
      const [r, g, b] = this.pixel.getImageData(0, 0, 1, 1).data;
      const toned = [r, g, b].map((part) => Math.round(part * (shade || 1)));
      return ((255 << 24) | (toned[2] << 16) | (toned[1] << 8) | toned[0]) >>> 0;
    }
  }

  // One of the two pictures.
  class Panel {
    constructor(map, name, caption, offsets, cells, held) {
      this.map = map;
      this.name = name;
      this.offsets = offsets;
      this.cells = cells;
      this.held = held;
      this.low = 0;
      this.high = map.mostUnits;
      this.picture = make("canvas", { class: "picture", "aria-hidden": "true" });
      this.overlay = make("canvas", {
        class: "overlay", tabindex: "0", role: "img",
        "aria-label": caption + " Arrow keys move, plus and minus zoom, 0 shows all, P the peak, "
          + "shift with left and right goes from block to block, F shows the block, Escape leaves it.",
      });
      this.curve = make("canvas", { class: "curve", "aria-hidden": "true" });
      this.stage = make("div", { class: "stage" }, this.picture, this.overlay);
      this.figure = make("figure", {}, make("figcaption", {}, caption), this.stage, this.curve);
      this.summarise();
    }

    // The rectangle around each chunk of blocks.
    summarise() {
      const { blocks } = this.map;
      this.chunks = [];
      for (let first = 0; first < blocks.count; first += CHUNK) {
        const last = Math.min(blocks.count, first + CHUNK);
        const chunk = { first, last, start: blocks.start[first], end: 0, low: Infinity, high: 0 };
        for (let i = first; i < last; i += 1) {
          if (this.offsets[i] < 0) continue;
          chunk.end = Math.max(chunk.end, blocks.end[i]);
          chunk.low = Math.min(chunk.low, this.offsets[i]);
          chunk.high = Math.max(chunk.high, this.offsets[i] + blocks.size[i]);
        }
        this.chunks.push(chunk);
      }
    }

    resize(width, height, scale) {
      this.width = width - GUTTER;
      this.height = height;
      this.scale = scale;
      this.columns = Math.max(1, Math.round(this.width * scale));
      this.rows = Math.max(1, Math.round(height * scale));
      this.picture.width = this.columns;
      this.picture.height = this.rows;
      this.context = this.picture.getContext("2d");
      this.image = this.context.createImageData(this.columns, this.rows);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.ids = new Int32Array(this.columns * this.rows);
      this.overlay.width = Math.round(width * scale);
      this.overlay.height = this.rows;
      this.curve.width = Math.round(width * scale);
      this.curve.height = Math.round(CURVE * scale);
      this.picture.style.width = this.width + "px";
      this.picture.style.height = height + "px";
      this.overlay.style.height = height + "px";
      this.curve.style.height = CURVE + "px";
    }

    x(moment) { return ((moment - this.map.from) / (this.map.to - this.map.from)) * this.columns; }
    y(unit) { return this.rows - ((unit - this.low) / (this.high - this.low)) * this.rows; }

    // Pixels that a rectangle covers, at least one each way; nothing where it is outside.
    box(start, end, low, high) {
      const left = Math.floor(this.x(start));
      const right = Math.max(left + 1, Math.floor(this.x(end)));
      const bottom = Math.ceil(this.y(low));
      const top = Math.min(bottom - 1, Math.ceil(this.y(high)));
      if (left >= this.columns || right <= 0 || top >= this.rows || bottom <= 0) return null;
      return { left: Math.max(0, left), right: Math.min(this.columns, right),
        top: Math.max(0, top), bottom: Math.min(this.rows, bottom) };
    }

    paint() {
      this.pixels.fill(this.map.words.ground);
      this.ids.fill(NOTHING);
      this.paintHeld();
      this.paintCells();
      this.paintBlocks();
      this.context.putImageData(this.image, 0, 0);
    }

    // Rows of a hatch that repeats every eight rows.
    hatch() {
      const { words } = this.map;
      const size = Math.max(6, Math.round(6 * this.scale));
      return Array.from({ length: size }, (_, y) => {
        const row = new Uint32Array(this.columns);
        for (let x = 0; x < this.columns; x += 1) {
          row[x] = (x + y) % size < this.scale * 1.5 ? words.hatch : words.held;
        }
        return row;
      });
    }

    paintHeld() {
      if (!this.held) return;
      const { held } = this;
      const rows = this.hatch();
      for (let i = 0; i < held.count; i += 1) {
        const box = this.box(held.start[i], held.end[i], held.offset[i],
          held.offset[i] + held.size[i]);
        if (!box) continue;
        for (let y = box.top; y < box.bottom; y += 1) {
          const at = y * this.columns;
          this.pixels.set(rows[y % rows.length].subarray(box.left, box.right), at + box.left);
          this.ids.fill(HELD, at + box.left, at + box.right);
        }
        // The edge of a segment, where there is room for one.
        if (box.bottom - box.top > 5 * this.scale) {
          const at = (box.bottom - 1) * this.columns;
          this.pixels.fill(this.map.words.hatch, at + box.left, at + box.right);
        }
      }
    }

    fill(box, colour, id) {
      for (let y = box.top; y < box.bottom; y += 1) {
        const at = y * this.columns;
        if (box.right - box.left < 12) {
          for (let i = at + box.left; i < at + box.right; i += 1) {
            this.pixels[i] = colour;
            this.ids[i] = id;
          }
        } else {
          this.pixels.fill(colour, at + box.left, at + box.right);
          this.ids.fill(id, at + box.left, at + box.right);
        }
      }
    }

    paintCells() {
      const { cells } = this;
      for (let i = 0; i < cells.count; i += 1) {
        const box = this.box(cells.start[i], cells.end[i], cells.offset[i],
          cells.offset[i] + cells.size[i]);
        if (box) this.fill(box, this.map.words.merged, FIRST_CELL - i);
      }
    }

    paintBlocks() {
      const { blocks, colourOf, edgeOf } = this.map;
      this.painted = 0;
      for (const chunk of this.chunks) {
        if (chunk.start >= this.map.to) break;
        if (chunk.end <= this.map.from || chunk.high <= this.low || chunk.low >= this.high) continue;
        for (let i = chunk.first; i < chunk.last; i += 1) {
          const low = this.offsets[i];
          if (low < 0) continue;
          const box = this.box(blocks.start[i], blocks.end[i], low, low + blocks.size[i]);
          if (!box) continue;
          this.painted += 1;
          this.fill(box, colourOf[i], i);
          this.edge(box, edgeOf[i]);
        }
      }
    }

    // A line at the top and at the right, so that neighbours of one colour are told apart.
    edge(box, colour) {
      if (box.right - box.left < 4 || box.bottom - box.top < 4) return;
      const at = box.top * this.columns;
      this.pixels.fill(colour, at + box.left, at + box.right);
      for (let y = box.top; y < box.bottom; y += 1) {
        this.pixels[y * this.columns + box.right - 1] = colour;
      }
    }

    // What lies at a place of the overlay: a block's number, or one of the numbers above.
    at(clientX, clientY) {
      const box = this.overlay.getBoundingClientRect();
      const x = Math.floor((clientX - box.left - GUTTER) * this.scale);
      const y = Math.floor((clientY - box.top) * this.scale);
      if (x < 0 || y < 0 || x >= this.columns || y >= this.rows) return NOTHING;
      return this.ids[y * this.columns + x];
    }

    paintOverlay() {
      const context = this.overlay.getContext("2d");
      const { colours } = this.map;
      context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
      context.clearRect(0, 0, this.width + GUTTER, this.height);
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.textAlign = "right";
      const unit = this.map.data.unit;
      for (const [value, label] of byteTicks(this.low * unit, this.high * unit, this.height / 45)) {
        const y = this.y(value / unit) / this.scale;
        context.fillStyle = colours.css("soft");
        if (y > 8 && y < this.height - 6 || value === 0) {
          context.fillText(label, GUTTER - 8, Math.min(y, this.height - 7));
        }
        context.strokeStyle = colours.css("line");
        context.beginPath();
        context.moveTo(GUTTER - 5, y);
        context.lineTo(GUTTER, y);
        context.stroke();
      }
      this.paintPeak(context, true);
      this.outline(context, this.map.pointed, 1.5);
      this.outline(context, this.map.selected, 3);
    }

    paintPeak(context, isNamed) {
      const x = GUTTER + this.x(this.map.data.peak + 0.5) / this.scale;
      if (x < GUTTER || x > GUTTER + this.width) return;
      context.strokeStyle = this.map.colours.css("text");
      context.setLineDash([4, 3]);
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, 2000);
      context.stroke();
      context.setLineDash([]);
      if (!isNamed) return;
      const isRight = x > GUTTER + this.width - 60;
      context.textAlign = isRight ? "right" : "left";
      context.lineWidth = 4;
      context.strokeStyle = this.map.colours.css("surface");
      context.strokeText("peak", x + (isRight ? -5 : 5), 9);
      context.fillStyle = this.map.colours.css("text");
      context.fillText("peak", x + (isRight ? -5 : 5), 9);
    }

    outline(context, id, wide) {
      if (id < 0 || this.offsets[id] < 0) return;
      const { blocks, colours } = this.map;
      const box = this.box(blocks.start[id], blocks.end[id], this.offsets[id],
        this.offsets[id] + blocks.size[id]);
      if (!box) return;
      const grow = 1.5;
      const rect = [GUTTER + box.left / this.scale - grow, box.top / this.scale - grow,
        Math.max(3, (box.right - box.left) / this.scale) + 2 * grow,
        Math.max(3, (box.bottom - box.top) / this.scale) + 2 * grow];
      context.lineJoin = "round";
      context.strokeStyle = colours.css("surface");
      context.lineWidth = wide + 3;
      context.strokeRect(...rect);
      context.strokeStyle = colours.css("text");
      context.lineWidth = wide;
      context.strokeRect(...rect);
    }

    // Allocated as an area, and as a line what is reserved or what the plan takes.
    paintCurve() {
      const context = this.curve.getContext("2d");
      const { map } = this;
      const { curve, colours } = map;
      const floor = CURVE - 18;
      context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
      context.clearRect(0, 0, this.width + GUTTER, CURVE);
      const y = (value) => floor - (value / map.mostBytes) * (floor - 6);
      const columnsWide = Math.max(1, Math.floor(this.width));
      const allocated = map.highest(curve.allocated, columnsWide);
      context.fillStyle = colours.css("accent");
      context.globalAlpha = 0.35;
      context.beginPath();
      context.moveTo(GUTTER, floor);
      allocated.forEach((value, x) => {
        context.lineTo(GUTTER + x, y(value));
        context.lineTo(GUTTER + x + 1, y(value));
      });
      context.lineTo(GUTTER + columnsWide, floor);
      context.fill();
      context.globalAlpha = 1;
      const line = this.held ? map.highest(curve.reserved, columnsWide)
        : allocated.map(() => map.data.planned_units * map.data.unit);
      context.strokeStyle = colours.css("text");
      context.lineWidth = 1.75;
      context.beginPath();
      line.forEach((value, x) => {
        if (x === 0) context.moveTo(GUTTER, y(value));
        context.lineTo(GUTTER + x, y(value));
        context.lineTo(GUTTER + x + 1, y(value));
      });
      context.stroke();
      context.font = "12px system-ui, sans-serif";
      context.fillStyle = colours.css("soft");
      context.textBaseline = "alphabetic";
      context.textAlign = "right";
      context.fillText(bytes(map.mostBytes), GUTTER - 8, 14);
      context.fillText("0", GUTTER - 8, floor);
      this.paintIterations(context, floor);
      this.paintMoments(context, floor);
      this.paintPeak(context, false);
    }

    // Where iterations begin, unless they are too many to tell apart.
    paintIterations(context, floor) {
      const { map } = this;
      const inView = map.iterations.filter((moment) => moment >= map.from && moment <= map.to);
      if (inView.length > this.width / 6) return;
      context.strokeStyle = map.colours.css("soft");
      context.lineWidth = 1;
      for (const moment of inView) {
        const x = GUTTER + this.x(moment) / this.scale;
        context.beginPath();
        context.moveTo(x, 2);
        context.lineTo(x, floor);
        context.stroke();
      }
    }

    paintMoments(context, floor) {
      const { map } = this;
      context.textAlign = "center";
      context.fillStyle = map.colours.css("soft");
      context.strokeStyle = map.colours.css("line");
      context.lineWidth = 1;
      context.strokeRect(GUTTER, floor, this.width, 0);
      let taken = -Infinity;
      for (const moment of ticks(map.from, map.to, this.width / 90)) {
        const words = commas(moment);
        const half = words.length * 3.6;
        const middle = GUTTER + this.x(moment) / this.scale;
        const x = Math.min(Math.max(middle, GUTTER + half), GUTTER + this.width - half);
        if (x - half < taken + 10) continue;
        taken = x + half;
        context.fillText(words, x, CURVE - 4);
      }
    }

    show(low, high) {
      const most = this.map.mostUnits;
      const span = Math.min(Math.max(high - low, 4), most);
      this.low = Math.min(Math.max(low, 0), most - span);
      this.high = this.low + span;
    }
  }

  globalThis.headroomMap = { GUTTER, NOTHING, HELD, FIRST_CELL, make, bytes, commas, columns, ticks,
    Colours, Panel };
})();
