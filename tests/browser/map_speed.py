#!/usr/bin/env python3
"""How long an address map takes in headless Chromium: from its data to the first picture, and a
frame at several zooms. A measurement, not a test. Usage: map_speed.py PAGE.html [FRAMES]
"""

import json
import re
import html
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROBE = """<script>
(() => {
  const host = document.querySelector("[data-chart='map']");
  const { map } = host;
  const frames = FRAMES;
  const time = (act) => {
    const before = performance.now();
    for (let i = 0; i < frames; i += 1) { act(i); map.draw(); }
    return (performance.now() - before) / frames;
  };
  const found = { blocks: map.blocks.count, merged: map.data.merged_count,
    pixels: map.panels.reduce((sum, panel) => sum + panel.columns * panel.rows, 0),
    first_paint_ms: Number(host.dataset.firstPaintMs) };
  found.frame_ms_whole = time(() => {});
  map.zoom(map.panels[0], 10, 0.4, 0.4, true, true);
  found.frame_ms_zoom_10 = time((i) => map.pan(map.panels[0], i % 2 ? 0.01 : -0.01, 0));
  map.zoom(map.panels[0], 20, 0.4, 0.4, true, true);
  found.frame_ms_zoom_200 = time((i) => map.pan(map.panels[0], i % 2 ? 0.01 : -0.01, 0));
  found.painted_zoom_200 = host.dataset.painted;
  document.documentElement.setAttribute("data-found", JSON.stringify(found));
})();
</script></body>"""


def main():
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    page = Path(sys.argv[1]).read_text()
    frames = sys.argv[2] if len(sys.argv) > 2 else "30"
    at = page.rindex("</body>")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(page[:at] + PROBE.replace("FRAMES", frames) + page[at + len("</body>"):])
        done = subprocess.run(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1700,1200",
             f"--user-data-dir={folder}/profile", "--dump-dom", path.as_uri()],
            capture_output=True, text=True, errors="replace", timeout=300, check=False)
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    print(json.dumps(json.loads(html.unescape(found.group(1))), indent=1) if found else done.stderr)


if __name__ == "__main__":
    main()
