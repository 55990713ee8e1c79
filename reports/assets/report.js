// Upgrades a page that is complete without it: sorts tables, opens what a link points at, and
// replaces static figures by charts when the page carries plotly.js.
"use strict";
(() => {
  const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
  // Plotly reads a subset of HTML in its texts; kernel names are full of angle brackets.
  const plain = (text) => String(text).replace(/[&<>]/g, (c) => escapes[c]);

  function reveal() {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    if (!target) return;
    for (let node = target; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
      const pick = node.dataset.pick && document.getElementById(node.dataset.pick);
      if (pick && !pick.checked) {
        pick.checked = true;
        pick.dispatchEvent(new Event("change", { bubbles: true }));
      }
    }
    for (const fold of target.querySelectorAll(":scope > details.fold")) fold.open = true;
    target.scrollIntoView();
  }

  function sortable(table) {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => {
          const cell = row.cells[column];
          return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
        };
        const order = (a, b) => {
          const x = key(a), y = key(b);
          if (typeof x === "number" && typeof y === "number") return x - y;
          if (typeof x !== typeof y) return typeof x === "number" ? 1 : -1;
          return x < y ? -1 : x > y ? 1 : 0;
        };
        const rows = [...body.rows].sort(order);
        body.append(...(down ? rows.reverse() : rows));
      });
    });
  }

  async function inflate(base64) {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  const time = (ns) => {
    const [divisor, unit] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "us"] : [1, "ns"];
    return `${Number((ns / divisor).toPrecision(4))} ${unit}`;
  };
  const wrapped = (text) => (text.match(/.{1,70}/gs) || [""]).slice(0, 6).map(plain).join("<br>");
  const faint = "rgba(128,128,128,.3)";

  function layout(extra) {
    return Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      font: { size: 12, family: "system-ui, sans-serif" },
      hoverlabel: { bgcolor: "#20262c", bordercolor: "#20262c", font: { color: "#ffffff" }, align: "left", namelength: 0 },
    }, extra);
  }

  function waterfall(data) {
    const scaled = (ns) => ns / data.divisor;
    // Words below each other: slanted labels would be cut.
    const labels = data.bars.map((bar) => plain(bar.label).split(" ").join("<br>"));
    const hover = data.bars.map((bar) => `${bar.label}: ${bar.text}, ${bar.share}`);
    return {
      height: labels.length > 8 ? 380 : 320,
      traces: [
        { type: "bar", x: labels, y: data.bars.map((b) => scaled(b.base)), marker: { color: "rgba(0,0,0,0)" }, hoverinfo: "skip" },
        {
          type: "bar", x: labels, y: data.bars.map((b) => scaled(b.value)), text: data.bars.map((b) => b.text),
          textposition: "outside", cliponaxis: false, hovertext: hover, hoverinfo: "text",
          marker: { color: data.bars.map((b) => b.color), line: { color: faint, width: 1 } },
        },
      ],
      layout: layout({
        barmode: "stack", margin: { l: 60, r: 10, t: 24, b: labels.length > 8 ? 62 : 40 },
        xaxis: { fixedrange: true, tickangle: 0 }, yaxis: { title: { text: data.unit }, gridcolor: faint, rangemode: "tozero" },
      }),
    };
  }

  function gantt(data, width) {
    const scaled = (ns) => ns / data.divisor;
    const traces = data.classes.map((entry, index) => {
      const marks = data.marks.filter((mark) => mark[1] === index);
      const labels = data.marks.flatMap((mark, place) => {
        const label = data.labels[place] || "";
        const fits = (mark[4] / data.window) * (width - 124) > 6.5 * label.length + 6;
        return mark[1] === index ? [fits ? label : ""] : [];
      });
      return {
        type: "bar", orientation: "h", name: entry.label, width: 0.78,
        y: marks.map((m) => data.rows.length - 1 - m[0]), base: marks.map((m) => scaled(m[3])), x: marks.map((m) => scaled(m[4])),
        // Opaque bars below a pixel would be widened to one, and many of them would fill the row.
        marker: { color: `${entry.color}fd`, line: { width: 0 } }, hoverinfo: "text",
        text: labels.map(plain), textposition: "inside", insidetextanchor: "start", constraintext: "none", textangle: 0,
        insidetextfont: { color: "#ffffff", size: 11 },
        hovertext: marks.map((m) => {
          const many = m[5] > 1 ? `<br>${m[5]} items, together ${time(m[6])}; longest:` : "";
          const node = data.nodes[m[7]] ? `<br>${plain(data.nodes[m[7]])}` : "";
          return `<b>${plain(entry.label)}</b>, ${plain(data.rows[m[0]])}<br>${time(m[3])} to ${time(m[3] + m[4])} (${time(m[4])})${many}${node}<br>${wrapped(data.names[m[2]])}`;
        }),
      };
    });
    const places = data.rows.map((_, index) => data.rows.length - 1 - index);
    return {
      height: 92 + 30 * data.rows.length, traces,
      layout: layout({
        barmode: "overlay", dragmode: "zoom", hovermode: "closest", margin: { l: 110, r: 14, t: 30, b: 46 },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: "#7a828a", activecolor: "#0072b2" },
        xaxis: { range: [0, scaled(data.window)], title: { text: data.unit }, gridcolor: faint, zeroline: false },
        yaxis: { tickvals: places, ticktext: data.rows.map(plain), fixedrange: true, range: [-0.6, data.rows.length - 0.4], gridcolor: faint, zeroline: false },
      }),
    };
  }

  function heat(data) {
    const percent = (share) => (share === null ? "" : `${(100 * share).toFixed(1)} %`);
    const words = data.values.map((row, i) => row.map((v, j) => `${data.rows[i]}, ${data.columns[j]}: ${percent(v)}`));
    return {
      height: Math.min(90 + 26 * data.rows.length, 720),
      traces: [{
        type: "heatmap", z: data.values, x: data.columns, y: data.rows,
        zmin: 0, zmax: data.high, xgap: 1, ygap: 1, hovertext: words, hoverinfo: "text",
        colorscale: [[0, "rgba(0,114,178,.06)"], [1, data.color]], colorbar: { tickformat: data.high < 0.05 ? ".1%" : ".0%", thickness: 12 },
      }],
      layout: layout({ margin: { l: 100, r: 10, t: 8, b: 40 }, yaxis: { autorange: "reversed", type: "category", showgrid: false }, xaxis: { type: "category", showgrid: false } }),
    };
  }

  // One of several figures is shown at a time, and a chart drawn while hidden would have no width.
  function whenPicked(figure, draw) {
    const choice = figure.closest(".choice");
    if (!choice) return;
    choice.addEventListener("change", function picked() {
      if (!figure.clientWidth) return;
      choice.removeEventListener("change", picked);
      draw();
    });
  }

  const makers = { waterfall, gantt, heat };

  async function upgrade() {
    const packed = document.getElementById("plotly");
    if (!packed || typeof DecompressionStream === "undefined") return;
    const script = document.createElement("script");
    script.textContent = await inflate(packed.textContent.trim());
    packed.remove();
    document.head.append(script);
    const colors = matchMedia("(prefers-color-scheme: dark)");
    const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--fg").trim();
    const draw = (data, figure) => {
      // Bars beside each other need room; the static ones lie below each other.
      if (data.kind === "waterfall" && figure.clientWidth < 95 * Math.min(data.bars.length, 9)) return undefined;
      const made = makers[data.kind](data, figure.clientWidth);
      const box = document.createElement("div");
      box.className = `chart ${data.kind}-chart`;
      box.setAttribute("role", "img");
      box.setAttribute("aria-label", figure.querySelector("figcaption, caption").textContent);
      figure.prepend(box);
      figure.classList.add("upgraded");
      made.layout.height = made.height;
      made.layout.font.color = ink();
      const settings = { responsive: true, displaylogo: false, displayModeBar: data.kind === "gantt" ? "hover" : false, scrollZoom: false, modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };
      const drawn = Plotly.newPlot(box, made.traces, made.layout, settings);
      colors.addEventListener("change", () => Plotly.relayout(box, { "font.color": ink() }));
      return drawn;
    };
    for (const data of JSON.parse(document.getElementById("charts").textContent)) {
      const figure = document.querySelector(`[data-figure="${CSS.escape(data.id)}"]`);
      const fold = figure && figure.closest("details");
      if (!figure) continue;
      // A chart drawn inside a closed fold would have no width.
      if (fold && !fold.open) fold.addEventListener("toggle", () => draw(data, figure), { once: true });
      else if (!figure.clientWidth) whenPicked(figure, () => draw(data, figure));
      else await draw(data, figure);
    }
    document.documentElement.dataset.charts = "ready";
  }

  document.documentElement.dataset.scripted = "";
  for (const table of document.querySelectorAll("table.data")) sortable(table);
  addEventListener("hashchange", reveal);
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details.fold")) fold.open = true;
  });
  reveal();
  upgrade().then(reveal, () => { document.documentElement.dataset.charts = "failed"; });
})();
