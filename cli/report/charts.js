// The charts. Each takes the rows that the filter leaves.

const describe = (r) => [
  `${r.op}, ${r.dtype}, ${r.layout}`,
  `${digits(r.gflops)} GFLOP/s, ${digits(r.gbs)} GB/s`,
  `${percent(r.share)} of the limit: ${digits(r.limit_gflops)} GFLOP/s, ${r.limit}`,
  `${duration(r.min_ms)}; ${r.algorithm}, ${r.isa}${r.threads ? `, ${r.threads} thread${r.threads === 1 ? '' : 's'}` : ''}`,
];

// Labels that would overlap move apart, downwards.
const spread = (labels, distance) => {
  labels.sort((a, b) => a.y - b.y);
  for (let i = 1; i < labels.length; i++) labels[i].y = Math.max(labels[i].y, labels[i - 1].y + distance);
  return labels;
};

const roofline = (svg, width, rows, engines) => {
  const height = Math.round(Math.min(560, Math.max(320, width * 0.55)));
  const right = width - 10, top = 18, bottom = height - 40;
  if (rows.length === 0) { draw(svg, 'text', { x: 46, y: 40 }, 'No case passes the filter.'); return 80; }
  // Each engine has its own roof.
  const peaks = engines.flatMap((e) => e.peaks.map((p) => ({ ...p, engine: e.name, widest: Math.max(...e.bandwidths.map((b) => b.gbs)) })));
  const bandwidths = engines.flatMap((e) => e.bandwidths.map((b) => ({ ...b, engine: e.name, highest: Math.max(...e.peaks.map((p) => p.gflops)) })));
  const several = engines.length > 1;
  const highest = Math.max(...peaks.map((p) => p.gflops));

  let [x_low, x_high] = extent(rows.map((r) => r.intensity));
  let [y_low, y_high] = extent(rows.map((r) => r.gflops));
  x_low = Math.min(x_low / 2, ...peaks.map((p) => p.gflops / p.widest / 3)); x_high = Math.max(x_high * 2, ...bandwidths.map((b) => b.highest / b.gbs * 2));
  y_low = 10 ** Math.floor(Math.log10(y_low * 0.8)); y_high = Math.max(y_high, highest) * 1.6;
  const left = Math.max(46, 10 + Math.max(...powers(y_low, y_high, true).map((t) => width_of(digits(t)))));
  const x = logarithmic(x_low, x_high, left, right), y = logarithmic(y_low, y_high, bottom, top);

  for (const t of powers(x_low, x_high, width > 600)) {
    draw(svg, 'line', { class: 'grid', x1: x(t), x2: x(t), y1: top, y2: bottom });
    draw(svg, 'text', { x: x(t), y: bottom + 16, 'text-anchor': 'middle' }, digits(t));
  }
  for (const t of powers(y_low, y_high, true)) {
    draw(svg, 'line', { class: 'grid', x1: left, x2: right, y1: y(t), y2: y(t) });
    draw(svg, 'text', { x: left - 6, y: y(t) + 4, 'text-anchor': 'end' }, digits(t));
  }
  draw(svg, 'text', { x: left, y: top - 6 }, 'GFLOP/s');
  draw(svg, 'text', { x: right, y: height - 6, 'text-anchor': 'end' }, 'FLOP per byte of tensors');

  const suffix = (e) => several ? ` · ${e.engine}` : '';
  for (const p of peaks) {
    const start = Math.max(x_low, p.gflops / p.widest);
    if (start < x_high) draw(svg, 'line', { class: 'limit-line peak', x1: x(start), x2: right, y1: y(p.gflops), y2: y(p.gflops) });
  }
  for (const b of bandwidths) {
    const from = Math.max(x_low, y_low / b.gbs), to = Math.min(x_high, b.highest / b.gbs);
    draw(svg, 'line', { class: 'limit-line dashed bandwidth', x1: x(from), y1: y(from * b.gbs), x2: x(to), y2: y(to * b.gbs) });
  }

  const own = draw(svg, 'g');
  for (const r of rows) {
    const node = draw(svg, 'path', { class: `point ${pass_of(r.op)}${hollow(r.on) ? ' hollow' : ''}`, d: marker(r.dtype, x(r.intensity), y(r.gflops), 4.5) });
    with_tip(node, r.name, describe(r), () => {
      draw(own, 'line', { class: 'own-limit', x1: x(r.intensity), x2: x(r.intensity), y1: y(r.gflops), y2: y(r.limit_gflops) });
      draw(own, 'line', { class: 'own-limit', x1: x(r.intensity) - 7, x2: x(r.intensity) + 7, y1: y(r.limit_gflops), y2: y(r.limit_gflops) });
    }, () => own.replaceChildren());
  }

  const labels = peaks.map((p) => ({ y: y(p.gflops) - 5, text: `${p.label} ${digits(p.gflops)} GFLOP/s${suffix(p)}` }));
  for (const l of spread(labels, 14)) draw(svg, 'text', { class: 'halo', x: right, y: l.y, 'text-anchor': 'end' }, l.text);
  const slope = Math.atan2(y(10) - y(1), x(10) - x(1)) * 180 / Math.PI;
  for (const b of bandwidths) {
    // Along the line, in its lower part.
    const from = Math.max(x_low, y_low / b.gbs), at = from * 1.25;
    const place = `translate(${x(at)} ${y(at * b.gbs) - 5}) rotate(${slope})`;
    draw(svg, 'text', { class: 'halo', transform: place }, `${b.label} ${digits(b.gbs)} GB/s${suffix(b)}`);
  }
  return height;
};

const value_of = (r) => `${percent(r.share)} · ${duration(r.min_ms)}`;

// One group of bars for each layer, a bar for each pass: the share of the limit.
const bars = (svg, width, rows, group_of) => {
  const groups = new Map();
  for (const r of rows) {
    const key = group_of(r);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(r);
  }
  const longest = Math.max(...[...groups.keys()].map(width_of));
  const left = Math.min(width * 0.4, longest + 12), right = width - Math.max(...rows.map((r) => width_of(value_of(r)))) - 8, thick = 11, gap = 9, top = 22;
  const most = Math.max(1, ...rows.map((r) => r.share));
  const x = linear(0, most, left, right);
  let at = top + 4;
  const layout = [...groups].map(([name, list]) => {
    const first = at;
    at += list.length * (thick + 2) + gap;
    return { name, list, first };
  });
  const height = at + 4;
  for (const t of right - left < 240 ? [0, 0.5] : [0, 0.25, 0.5, 0.75]) {
    draw(svg, 'line', { class: 'grid', x1: x(t), x2: x(t), y1: top, y2: height - 6 });
    draw(svg, 'text', { x: x(t), y: top - 7, 'text-anchor': 'middle' }, `${100 * t} %`);
  }
  draw(svg, 'line', { class: 'limit-line', x1: x(1), x2: x(1), y1: top, y2: height - 6 });
  draw(svg, 'text', { class: 'strong', x: x(1), y: top - 7, 'text-anchor': 'middle' }, 'limit');
  for (const g of layout) {
    const name = shortened(g.name, left - 10);
    const label = draw(svg, 'text', { class: 'name', x: left - 8, 'text-anchor': 'end',
      y: g.first + g.list.length * (thick + 2) / 2 + 3 }, name);
    if (name !== g.name) draw(label, 'title', {}, g.name);
    g.list.forEach((r, i) => {
      const y = g.first + i * (thick + 2);
      const node = draw(svg, 'rect', { class: `bar ${pass_of(r.op)}`, x: left, y, rx: 2,
        width: Math.max(1, x(r.share) - left), height: thick });
      with_tip(node, r.name, describe(r));
      draw(svg, 'text', { class: 'halo', x: x(r.share) + 5, y: y + thick - 1.5 }, value_of(r));
    });
  }
  return height;
};

// One line for each case: a mark for each engine at its time, and which is the fastest by how much.
const contest = (svg, width, list, names) => {
  // Lines of one layer stand together, its name before the first of them: colours tell the pass.
  const label_of = (g) => g.layout_shown ? `${g.name} · ${g.layout}` : g.name;
  const verdict_of = (g) => `${g.fastest} ${digits(g.lead)}×`;
  const left = Math.min(width * 0.45, Math.max(...list.map((g) => width_of(label_of(g)))) + 12);
  const right = width - Math.max(...list.map((g) => width_of(verdict_of(g)))) - 16, step = 17, top = 22;
  let [low, high] = extent(list.flatMap((g) => g.results.map((r) => r.min_ms)));
  low *= 0.8; high *= 1.25;
  const x = logarithmic(low, high, left, right), height = top + list.length * step + 8;
  for (const t of powers(low, high, right - left > 300)) {
    draw(svg, 'line', { class: 'grid', x1: x(t), x2: x(t), y1: top - 2, y2: height - 6 });
    draw(svg, 'text', { x: x(t), y: top - 7, 'text-anchor': 'middle' }, duration(t));
  }
  list.forEach((g, i) => {
    const y = top + i * step + step / 2, text = shortened(label_of(g), left - 10);
    const [from, to] = extent(g.results.map((r) => x(r.min_ms)));
    if (i === 0 || label_of(g) !== label_of(list[i - 1])) {
      const label = draw(svg, 'text', { class: 'name', x: left - 8, y: y + 4, 'text-anchor': 'end' }, text);
      if (text !== label_of(g)) draw(label, 'title', {}, label_of(g));
    }
    draw(svg, 'line', { class: 'limit-line', x1: from, x2: to, y1: y, y2: y });
    for (const r of g.results) {
      const node = draw(svg, 'path', { class: `contestant ${pass_of(r.op)}${hollow(r.on) ? ' hollow' : ''}`,
        d: engine_marker(names.indexOf(r.on), x(r.min_ms), y, 4.5) });
      with_tip(node, `${r.name} on ${r.on}`, describe(r));
    }
    draw(svg, 'text', { class: 'strong', x: width - 4, y: y + 4, 'text-anchor': 'end' }, verdict_of(g));
  });
  return height;
};

// Lines over epochs. `series`: { name, style, points: [[x, y], …], dots }.
const curves = (svg, width, series, format, range) => {
  const height = 260, left = 52, right = width - 14, top = 14, bottom = height - 34;
  const xs = series.flatMap((s) => s.points.map((p) => p[0]));
  const [low, high] = range, last = Math.max(1, ...xs);
  const x = linear(0, last, left, right), y = linear(low, high, bottom, top);
  for (const t of ticks(low, high, 5)) {
    draw(svg, 'line', { class: 'grid', x1: left, x2: right, y1: y(t), y2: y(t) });
    draw(svg, 'text', { x: left - 6, y: y(t) + 4, 'text-anchor': 'end' }, format(t));
  }
  for (const t of ticks(0, last, Math.min(8, last)).filter(Number.isInteger))
    draw(svg, 'text', { x: x(t), y: bottom + 16, 'text-anchor': 'middle' }, t);
  draw(svg, 'text', { x: right, y: height - 3, 'text-anchor': 'end' }, 'epoch');
  for (const s of series) {
    const inside = s.points.map(([a, b]) => [x(a), y(Math.min(high, Math.max(low, b)))]);
    draw(svg, 'path', { class: `curve ${s.style}`, d: `M${inside.map((p) => `${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join('L')}` });
    if (!s.dots) continue;
    s.points.forEach(([a, b], i) => {
      const dot = draw(svg, 'circle', { class: `dot ${s.style}`, cx: inside[i][0], cy: inside[i][1], r: 3.5 });
      with_tip(dot, `epoch ${a}`, [`${s.name}: ${format(b)}`]);
    });
  }
  return height;
};

// Seconds by op, and what is left of the time.
const shares = (svg, width, list) => {
  const longest = Math.max(...list.map((s) => width_of(s.op)));
  const left = Math.min(longest + 10, width * 0.6), thick = 20;
  const total = list.reduce((sum, s) => sum + s.seconds, 0);
  const values = list.map((s) => `${digits(s.seconds)} s · ${percent(s.seconds / total)}`);
  const right = width - Math.max(...values.map(width_of)) - 8;
  const x = linear(0, Math.max(...list.map((s) => s.seconds)), left, right);
  list.forEach((s, i) => {
    const y = i * (thick + 8) + 4;
    draw(svg, 'text', { class: 'name', x: left - 8, y: y + 14, 'text-anchor': 'end' }, s.op);
    const bar = draw(svg, 'rect', { class: `share ${s.calls ? pass_of(s.op) : 'other'}`, x: left, y, rx: 2,
      width: Math.max(1, x(s.seconds) - left), height: thick });
    with_tip(bar, s.op, [`${digits(s.seconds)} s, ${percent(s.seconds / total)} of the training steps`,
      s.calls ? `${s.calls} calls` : s.what]);
    draw(svg, 'text', { class: 'halo', x: x(s.seconds) + 6, y: y + 14 }, values[i]);
  });
  return list.length * (thick + 8) + 6;
};
