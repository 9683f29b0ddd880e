#!/usr/bin/env python3
"""Opens pages of ours in headless Chromium and looks at them as a reader would.

Every page: nothing goes wrong in the console, nothing is loaded, nothing is wider than the window
(1280, 700 and 360 pixels), the step chart, the address map or the timeline is drawn and answers to pointer and
keys. A page full of hostile names: none of them runs. Exit code 77 (skipped) where there is no Chromium.
Usage: pages.py SAMPLE_PAGE   (src/report/sample_page.cpp, built)
"""

import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
PLAIN = ("compare", "ranks", "predicted")  # pages of bars and tables alone
HOSTILE = "<script>window.hit=1</script>\"'><img src=x onerror=window.hit=1>{{script}}</script><!--"

# Chromium's window is at least 500 pixels wide, a frame in it is not. The frame says what it found.
FRAME = """<!doctype html><body style="margin:0"><script>
addEventListener("message", (event) => {
  document.documentElement.setAttribute("data-found", event.data);
});
</script><iframe src="page.html" style="border:0;height:900px;width:WIDTHpx"></iframe></body>"""

# Runs in the page, after it.
PROBE = """<script>
setTimeout(() => {
  const found = {};
  found.hit = window.hit === 1;
  found.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const svg = document.querySelector(".step svg");
  const tip = document.querySelector(".tip");
  found.layers = svg ? svg.querySelectorAll("path").length : 0;
  if (svg) {
    const texts = [...svg.querySelectorAll("text")].map((text) => text.textContent);
    found.peak = texts.some((text) => text.startsWith("peak "));
    const box = svg.getBoundingClientRect();
    const move = (x) => svg.dispatchEvent(
      new PointerEvent("pointermove", { clientX: x, clientY: box.top + 90 }));
    move(box.left + box.width / 2);
    found.pointed = !tip.hidden && tip.textContent.includes("allocated");
    const edges = [box.left + 70, box.right - 2].map((x) => {
      move(x);
      const t = tip.getBoundingClientRect();
      return t.left >= -1 && t.right <= document.documentElement.clientWidth + 1;
    });
    found.inside = edges.every(Boolean);
    svg.dispatchEvent(new KeyboardEvent("keydown", { key: "p" }));
    found.keyed = tip.textContent.startsWith("Peak: ");
  }
  const host = document.querySelector("[data-chart='map']");
  if (host) {
    const map = host.map;
    const panels = map.panels;
    const key = (name) => panels[0].overlay.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
    found.map = panels.length;
    found.first_paint_ms = Number(host.dataset.firstPaintMs);
    // Most blocks are in view, and colours of all kinds are on the canvas.
    found.painted = panels.map((panel) => panel.painted);
    found.colours = new Set(panels[0].pixels).size;
    // A pixel with a block in it answers with that block.
    const at = panels[0].ids.findIndex((id) => id > 20);
    const id = panels[0].ids[at];
    const box = panels[0].overlay.getBoundingClientRect();
    const x = box.left + 84 + ((at % panels[0].columns) + 0.5) / panels[0].scale;
    const y = box.top + (Math.floor(at / panels[0].columns) + 0.5) / panels[0].scale;
    panels[0].overlay.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y }));
    const mapTip = host.querySelector(".tip");
    found.map_pointed = map.pointed === id && !mapTip.hidden && mapTip.textContent.includes("iB");
    const t = mapTip.getBoundingClientRect();
    found.map_inside = t.left >= -1 && t.right <= document.documentElement.clientWidth + 1;
    map.select(id);
    found.map_told = host.querySelector(".detail").textContent.includes("lives");
    const span = map.to - map.from;
    key("+");
    found.map_zoomed = map.to - map.from < span;
    key("f");
    key("p");
    key("0");
    found.map_whole = map.to - map.from === map.data.moments;
    key("Escape");
    found.map_left = map.selected < 0;
    map.choice.value = "site";
    map.choice.dispatchEvent(new Event("change"));
    map.draw();
    found.map_sites = new Set(panels[0].pixels).size;
  }
  const line = document.querySelector("[data-chart='timeline']");
  if (line) {
    const { timeline } = line;
    timeline.draw();
    found.timeline = timeline.rows.length;
    found.line_painted = Number(line.dataset.painted);
    found.line_frame_ms = Number(line.dataset.frameMs);
    const row = timeline.rows.find((one) => one.kind === "stream");
    timeline.show(row.marks.start[100] - 1000, row.marks.start[100] + row.marks.span[100] + 1000);
    timeline.draw();
    const box = timeline.canvas.getBoundingClientRect();
    const x = box.left + timeline.x(row.marks.start[100] + row.marks.span[100] / 2);
    const y = box.top + row.top + row.height / 2;
    timeline.canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y }));
    const lineTip = line.querySelector(".tip");
    found.line_pointed = !lineTip.hidden
      && lineTip.textContent.includes(timeline.data.names[row.marks.name[100]]);
    const t = lineTip.getBoundingClientRect();
    found.line_inside = t.left >= -1 && t.right <= document.documentElement.clientWidth + 1;
    const span = timeline.to - timeline.from;
    const key = (name) => timeline.canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
    key("-");
    found.line_zoomed = timeline.to - timeline.from > span;
    key("g");
    found.line_gap = timeline.to - timeline.from < timeline.data.length_ns;
    key("0");
    found.line_whole = timeline.to - timeline.from === timeline.data.length_ns;
    found.dots = document.querySelectorAll(".curves .dot").length;
  }
  const button = document.querySelector("[data-theme-toggle]");
  const ground = () => getComputedStyle(document.body).backgroundColor;
  const before = ground();
  button.click();
  found.themed = ground() !== before;
  parent.postMessage(JSON.stringify(found), "*");
}, 200);
</script></body>"""


def open_page(chromium, page, width, profile):
    """(what the probe found, what the console said)"""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "page.html").write_text(page.replace("</body>", PROBE))
        path = Path(folder) / "frame.html"
        path.write_text(FRAME.replace("WIDTH", str(width)))
        done = subprocess.run(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
             f"--user-data-dir={profile}", "--window-size=1400,1000", "--virtual-time-budget=3000",
             "--dump-dom", path.as_uri()],
            capture_output=True, text=True, errors="replace", timeout=120, check=False)
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return (json.loads(html.unescape(found.group(1))) if found else None), console


def faults_of_map(found):
    faults = []
    if found["map"] != 2:
        faults.append(f"the map has {found['map']} pictures")
    if min(found["painted"]) < 1000:
        faults.append(f"the map shows {found['painted']} blocks")
    if found["colours"] < 4 or found["map_sites"] < 8:
        faults.append(f"the map has {found['colours']} and {found['map_sites']} colours")
    for what in ("pointed", "inside", "told", "zoomed", "whole", "left"):
        if not found.get("map_" + what):
            faults.append(f"the map is not {what}")
    return faults


def faults_of_timeline(found):
    faults = []
    if found["timeline"] < 5 or found["line_painted"] < 500 or found["dots"] < 2:
        faults.append(f"the timeline has {found['timeline']} rows, {found['line_painted']} marks, "
                      f"the roofline {found['dots']} dots")
    for what in ("pointed", "inside", "zoomed", "gap", "whole"):
        if not found.get("line_" + what):
            faults.append(f"the timeline is not {what}")
    return faults


def faults_of(found, console, has_chart):
    if found is None:
        return ["the page did not come to its end"] + console
    faults = list(console)
    if found["hit"]:
        faults.append("a hostile name ran")
    if found["wide"] > 0:
        faults.append(f"{found['wide']} pixels wider than the window")
    if not found.get("themed"):
        faults.append("not themed")
    if "map" in found:
        return faults + faults_of_map(found)
    if "timeline" in found:
        return faults + faults_of_timeline(found)
    if not has_chart:
        return faults
    if found["layers"] < 10:
        faults.append(f"the step chart has {found['layers']} layers")
    for what in ("peak", "pointed", "inside", "keyed"):
        if not found.get(what):
            faults.append(f"not {what}")
    return faults


def main():
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if not chromium:
        print("SKIPPED: there is no Chromium")
        return SKIPPED
    sample = str(Path(sys.argv[1]).resolve())
    failed = 0
    with tempfile.TemporaryDirectory() as profile:
        for name, arguments in (("fit", ["fit"]), ("hostile fit", ["fit", HOSTILE]),
                                ("pack", ["pack"]), ("hostile pack", ["pack", HOSTILE]),
                                ("ops", ["ops"]), ("hostile ops", ["ops", HOSTILE]),
                                *((kind, [kind]) for kind in PLAIN),
                                *((f"hostile {kind}", [kind, HOSTILE]) for kind in PLAIN)):
            page = subprocess.run([sample, *arguments], capture_output=True, text=True,
                                  check=True).stdout
            for width in (1280, 700, 360):
                faults = faults_of(*open_page(chromium, page, width, profile),
                                   has_chart=arguments[0] not in PLAIN)
                failed += bool(faults)
                print(f"{'FAILED' if faults else 'passed'} {name} at {width} pixels")
                print("".join(f"  {fault}\n" for fault in faults), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
