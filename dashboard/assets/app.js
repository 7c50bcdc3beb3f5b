// What pages do beside being read: they stay live, filter as one types, draw charts and take keys. All work without it.
"use strict";
(() => {
  const $ = (selector, all) => [...(all || document).querySelectorAll(selector)];

  // Live: one stream while the page is visible; the server sends the fields that have changed.
  const stream = document.body.dataset.live;
  if (stream && window.EventSource) {
    const mark = $(".livemark")[0], trouble = document.getElementById("trouble"), stale = $(".stale")[0], seen = $(".seen")[0];
    let source = null, ran = null;
    const live = on => { if (mark) { mark.hidden = false; mark.classList.toggle("off", !on); } };
    const show = event => {
      const news = JSON.parse(event.data);
      trouble.hidden = !news.error;
      trouble.textContent = news.error;
      live(!news.error);
      if (seen) { seen.hidden = !news.seen; seen.textContent = news.seen || ""; }
      if (news.stale && stale) stale.hidden = false;
      for (const box of $("[data-c]")) {
        const fields = news.rows && news.rows[box.dataset.c];
        if (!fields) continue;
        for (const cell of $("[data-f]", box)) {
          const text = fields[cell.dataset.f];
          if (text === undefined) continue;
          if (cell.tagName === "PROGRESS") { cell.value = Number(text); continue; }
          const place = cell.querySelector("a") || cell;
          if (place.textContent !== text) place.textContent = text;
          if (cell.dataset.f === "jobrun") {
            if (ran === "true" && text === "false") location.reload();
            ran = text;
          }
        }
      }
    };
    const open = () => {
      if (source || document.hidden) return;
      source = new EventSource(stream);
      source.onmessage = show;
      source.onerror = () => live(false);
    };
    const close = () => { if (source) { source.close(); source = null; } };
    for (const cell of $("[data-f=jobrun]")) ran = cell.textContent;
    document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
    addEventListener("pagehide", close);
    addEventListener("submit", close); // what is sent is not cut off by a reload
    addEventListener("pageshow", open);
    open();
  }

  // Filter rows as one types; Enter asks the server, which has the other pages, too.
  for (const input of $("[data-filter]")) {
    const rows = $("tbody tr", document.getElementById(input.dataset.filter));
    input.addEventListener("input", () => {
      const text = input.value.toLowerCase();
      for (const row of rows) row.hidden = !(row.dataset.c || "").toLowerCase().includes(text);
    });
  }

  // On a phone, where one is may be beyond the edge of a row of links.
  for (const here of $("nav [aria-current]")) here.scrollIntoView({ block: "nearest", inline: "nearest" });

  for (const all of $("[data-all]")) {
    all.hidden = false;
    all.addEventListener("change", () => { for (const box of $("input[name=ref]", all.closest("table"))) box.checked = all.checked; });
  }

  // Keys: / goes to the search field, j and k from row to row, Esc from a question back.
  document.addEventListener("keydown", event => {
    if (event.key === "Escape") { for (const no of $("[data-no]")) no.click(); }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input,textarea,select")) return;
    if (event.key === "/") {
      const field = $("[data-filter],[data-slash]")[0];
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    } else if (event.key === "j" || event.key === "k") {
      const links = $("main tbody tr:not([hidden]) th a");
      const at = links.findIndex(a => a.closest("tr").contains(document.activeElement));
      const next = links[Math.min(links.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)))];
      if (next) next.focus();
    }
  });

  // Charts of the table of the series.
  const series = document.getElementById("series"), figures = $("[data-chart]");
  if (!series || !window.uPlot) return;
  const heads = $("thead th", series).map(th => th.textContent);
  const rows = $("tbody tr", series);
  const column = n => rows.map(row => n === 0
    ? Date.parse(row.cells[0].firstElementChild.dateTime) / 1000 : Number(row.cells[n].textContent));
  const colour = name => {
    const probe = document.createElement("i");
    probe.className = name;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };
  const short = v => v == null ? "" : v >= 1e6 ? +(v / 1e6).toFixed(1) + "M" : v >= 1e4 ? +(v / 1e3).toFixed(1) + "k" : +v.toPrecision(3) + "";
  const time = v => v == null ? "" : v >= 6e4 ? +(v / 6e4).toFixed(1) + "m" : v >= 1e3 ? +(v / 1e3).toFixed(1) + "s" : +v.toPrecision(3) + "ms";
  const days = rows.length > 1 && column(0)[1] - column(0)[0] >= 86400;
  const utc = v => new Date(v * 1000).toISOString().slice(0, 16).replace("T", " ");
  const clock = v => {
    const t = utc(v);
    return days || t.endsWith("00:00") ? t.slice(5, 10) : t.slice(11);
  };
  let charts = [];
  for (const figure of figures) figure.hidden = false;
  const draw = () => {
    for (const chart of charts) chart.destroy();
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    charts = figures.map(figure => {
      const unit = figure.dataset.unit, text = unit === "ms" ? time : v => short(v) + unit, mark = v => unit || Number.isInteger(v) ? text(v) : "";
      const columns = figure.dataset.chart.split(",").map(Number);
      return new uPlot({
        tzDate: t => uPlot.tzDate(new Date(t * 1000), "Etc/UTC"), width: figure.clientWidth - 20, height: 170, padding: [8, 8, 0, 0],
        cursor: { drag: { x: false, y: false }, sync: { key: "shunt" }, points: { size: 5 } },
        scales: { y: { range: (u, min, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [{ ...axis, size: 26, space: 60, values: (u, vs) => vs.map(clock) }, { ...axis, size: 54, values: (u, vs) => vs.map(mark) }],
        series: [{ label: heads[0], value: (u, v) => v == null ? "–" : utc(v) },
          ...columns.map((n, i) => ({ label: heads[n], stroke: colour("line" + (i + 1)), width: 1.5, points: { show: false },
            value: (u, v) => v == null ? "–" : text(v) }))],
      }, [column(0), ...columns.map(column)], figure);
    });
  };
  draw();
  const main = document.getElementById("main");
  let wait = 0, wide = main.clientWidth;
  new ResizeObserver(() => {
    clearTimeout(wait);
    wait = setTimeout(() => { if (wide !== main.clientWidth) { wide = main.clientWidth; draw(); } }, 100);
  }).observe(main);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
