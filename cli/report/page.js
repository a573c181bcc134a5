// The page: tiles, training, filters, charts of single ops, the table, the environment.

const main = document.getElementById('main');
document.getElementById('subtitle').textContent = data.subtitle;

const theme_of = (dark) => { document.documentElement.dataset.theme = dark ? 'dark' : 'light'; };
const prefers_dark = matchMedia('(prefers-color-scheme: dark)');
theme_of(prefers_dark.matches);
prefers_dark.addEventListener('change', (event) => theme_of(event.matches));
document.getElementById('theme').addEventListener('click', () =>
  theme_of(document.documentElement.dataset.theme !== 'dark'));

const section = (parent, title, text) => {
  const box = add(parent, 'section');
  add(box, 'h2', {}, title);
  if (text) add(box, 'p', {}, text);
  return box;
};

const tiles = (list) => {
  const box = add(main, 'div', { class: 'tiles' });
  for (const [value, label] of list) {
    const tile = add(box, 'div', { class: 'tile' });
    add(tile, 'b', {}, value);
    add(tile, 'span', {}, label);
  }
};

const picture = (parent, pixels, width, height) => {
  const canvas = add(parent, 'canvas', { width, height });
  const context = canvas.getContext('2d'), image = context.createImageData(width, height);
  pixels.forEach((p, i) => {
    const shade = Math.round(255 * Math.min(1, Math.max(0, p)));
    image.data.set([shade, shade, shade, 255], 4 * i);
  });
  context.putImageData(image, 0, 0);
};

const samples = (t) => {
  const restores = t.model === 'autoencoder';
  const wrong = t.samples.filter((s) => s.prediction !== s.label).length;
  const box = section(main, restores ? 'Reconstructions' : 'Test images', restores
    ? 'Test images above, below what the decoder makes of their code.'
    : `${wrong === 0 ? 'No test image is misread' : 'Misread test images first'}; under each picture what the network reads.`);
  const list = add(box, 'div', { class: 'samples' });
  for (const s of t.samples) {
    const misread = !restores && s.prediction !== s.label;
    const figure = add(list, 'figure', misread ? { class: 'wrong' } : {});
    picture(figure, s.image, t.width, t.height);
    if (restores) picture(figure, s.output, t.width, t.height);
    else add(figure, 'figcaption', {}, misread ? `${s.prediction}, is ${s.label}` : `${s.prediction}`);
  }
};

const training = (t) => {
  const last = t.epochs[t.epochs.length - 1];
  const restores = t.model === 'autoencoder';
  tiles([
    restores ? [digits(last.test_loss), `test error; ${digits(t.mean_image_error)} for the mean image`]
      : [`${(100 * last.test_accuracy).toFixed(2)} %`, `test accuracy, ${t.test_images} images`],
    ...(t.steps === 0 ? [] : [
      [digits(t.images_per_second), 'images per second in training'],
      [`${digits(t.seconds)} s`, `${t.steps} training steps`],
      [percent(t.shares.filter((s) => s.calls).reduce((sum, s) => sum + s.seconds, 0) / t.seconds), 'of the time in convolutions'],
    ]),
  ]);
  const pair = add(main, 'div', { class: 'pair' });
  const lines = (key) => t.epochs.map((e, i) => [i + 1, e[key]]);
  const curve_legend = (box, names) => {
    const legend_box = add(box, 'div', { class: 'legend' });
    for (const [name, style] of names) {
      const item = add(legend_box, 'span');
      draw(draw(item, 'svg', { width: 18, height: 8 }), 'path', { class: `curve ${style}`, d: 'M0 4h18' });
      item.append(name);
    }
  };
  const loss = section(pair, 'Loss', restores ? 'Mean squared error of a pixel.'
    : 'Cross-entropy. Training images are distorted and their labels softened, so theirs is higher.');
  curve_legend(loss, [['training', 'training'], ['test', 'test'], ['single steps', 'steps']]);
  const per_epoch = t.step_losses.length / t.epochs.length;
  const series = [
    { name: 'single steps', style: 'steps', points: t.step_losses.map((l, i) => [(i + 1) / per_epoch, l]) },
    { name: 'training loss', style: 'training', points: lines('training_loss'), dots: true },
    { name: 'test loss', style: 'test', points: lines('test_loss'), dots: true }];
  const top = 1.05 * Math.max(...t.step_losses, ...t.epochs.map((e) => e.test_loss));
  chart(loss, 'Loss by epoch', (svg, width) => curves(svg, width, series, digits, [0, top]));
  if (!restores) {
    const accuracy = section(pair, 'Accuracy', 'Share of images that are read correctly.');
    curve_legend(accuracy, [['training', 'training'], ['test', 'test']]);
    const both = [
      { name: 'training accuracy', style: 'training', points: lines('training_accuracy'), dots: true },
      { name: 'test accuracy', style: 'test', points: lines('test_accuracy'), dots: true }];
    const lowest = Math.min(...both.flatMap((s) => s.points.map((p) => p[1])));
    chart(accuracy, 'Accuracy by epoch', (svg, width) =>
      curves(svg, width, both, (v) => `${digits(100 * v)} %`, [Math.floor(lowest * 10) / 10, 1]));
  }
  if (t.steps > 0) {
    const time = section(restores ? pair : main, 'Time by op', 'Of all training steps together.');
    chart(time, 'Seconds by op', (svg, width) => shares(svg, width, t.shares));
  }
  samples(t);
};

// Filters: what they leave is `visible`; everything below is drawn from it.
const state = { text: '', op: '', dtype: '', engine: '', sort: null, down: false };
const results = data.results;
const matches = (r) =>
  (!state.op || r.op === state.op) && (!state.dtype || r.dtype === state.dtype)
  && (!state.engine || r.engine === state.engine)
  && state.text.toLowerCase().split(/\s+/).every((word) =>
    `${r.name} ${r.problem} ${r.op} ${r.dtype} ${r.algorithm} ${r.isa} ${r.on} ${r.limit}`.toLowerCase().includes(word));

const filters = (update) => {
  const box = add(main, 'section', { class: 'filters' });
  const label = add(box, 'label', {}, 'Find');
  const input = add(label, 'input', { type: 'search', placeholder: 'layer, problem, algorithm …', id: 'find' });
  input.addEventListener('input', () => { state.text = input.value; update(); });
  const choice = (key, title) => {
    const values = unique(results.map((r) => r[key]));
    if (values.length < 2) return;
    const select = add(add(box, 'label', {}, title), 'select', { id: `choose-${key}` });
    add(select, 'option', { value: '' }, 'all');
    for (const v of values) add(select, 'option', { value: v }, v);
    select.addEventListener('change', () => { state[key] = select.value; update(); });
  };
  choice('op', 'Op');
  choice('dtype', 'Type');
  choice('engine', 'Engine');
  return add(box, 'output', { id: 'count' });
};

const columns = [
  ['name', 'layer'], ['op', 'op'], ['dtype', 'type'], ['layout', 'layout'], ['algorithm', 'algorithm'], ['isa', 'isa'],
  ['on', 'engine'], ['threads', 'threads', (x) => x || ''], ['min_ms', 'min ms', (x) => x.toFixed(3)],
  ['median_ms', data.training ? 'mean ms' : 'median ms', (x) => x.toFixed(3)],
  ['gflops', 'GFLOP/s', (x) => x.toFixed(1)], ['gbs', 'GB/s', (x) => x.toFixed(1)],
  ['share', 'of limit', percent], ['limit', 'limit'], ['problem', 'problem'],
];
const table = (parent, update) => {
  const grid = add(add(parent, 'div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'All cases' }), 'table', { id: 'cases' });
  const head = add(add(grid, 'thead'), 'tr');
  const heads = columns.map(([key, title, number]) => {
    const cell = add(head, 'th', { scope: 'col', ...(number ? { class: 'number' } : {}) });
    add(cell, 'button', { type: 'button' }, title).addEventListener('click', () => {
      state.down = state.sort === key ? !state.down : Boolean(number);
      state.sort = key;
      update();
    });
    return cell;
  });
  const body = add(grid, 'tbody');
  return (rows) => {
    heads.forEach((cell, i) => {
      if (columns[i][0] === state.sort) cell.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
      else cell.removeAttribute('aria-sort');
    });
    const sorted = [...rows];
    if (state.sort) sorted.sort((a, b) => {
      const [p, q] = [a[state.sort], b[state.sort]];
      return (p < q ? -1 : p > q ? 1 : 0) * (state.down ? -1 : 1);
    });
    body.replaceChildren();
    for (const r of sorted) {
      const row = add(body, 'tr');
      for (const [key, , number] of columns)
        add(row, 'td', number ? { class: 'number' } : {}, number ? number(r[key]) : r[key]);
    }
  };
};

// The same case on each of several engines.
const contests = (rows) => {
  const groups = new Map();
  const layouts = unique(rows.map((r) => `${r.layout} ${is_transposed(r)}`)).length > 2;
  for (const r of rows) {
    const key = [r.name, r.problem, r.op, r.dtype, r.layout].join('|');
    if (!groups.has(key)) groups.set(key, { name: r.name, op: r.op, dtype: r.dtype, layout: r.layout, layout_shown: layouts, results: [] });
    groups.get(key).results.push(r);
  }
  const list = [...groups.values()].filter((g) => g.results.length > 1);
  for (const g of list) {
    const times = [...g.results].sort((a, b) => a.min_ms - b.min_ms);
    g.fastest = times[0].on;
    g.lead = times[1].min_ms / times[0].min_ms;
  }
  return list;
};

const side_by_side = () => {
  if (engine_names.length < 2 || contests(results).length === 0) return () => {};
  const box = section(main, 'Engines side by side', 'The fastest call of each case on each engine, and how many times as fast as the next one the fastest is. Every engine has its tensors in its own memory: nothing is copied.');
  legend(box, [], engine_names);
  const summary = add(box, 'p', { id: 'wins' });
  const panels = add(box, 'div', { class: 'panels' });
  const grid = add(add(box, 'div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Engines side by side' }), 'table', { id: 'engines' });
  const head = add(add(grid, 'thead'), 'tr');
  for (const title of ['layer', 'op', 'type', 'layout', ...engine_names.map((n) => `${n} ms`), 'fastest', 'times'])
    add(head, 'th', { scope: 'col', class: title.endsWith(' ms') || title === 'times' ? 'plain number' : 'plain' }, title);
  const body = add(grid, 'tbody');
  return (rows) => {
    const list = contests(rows);
    panels.replaceChildren();
    body.replaceChildren();
    summary.textContent = engine_names.map((name) => {
      const won = list.filter((g) => g.fastest === name);
      const mean = Math.exp(won.reduce((sum, g) => sum + Math.log(g.lead), 0) / won.length);
      return `${name} is the fastest in ${won.length} of ${list.length} cases${won.length ? `, by a factor of ${digits(mean)} in the geometric mean` : ''}.`;
    }).join(' ');
    for (const type of unique(list.map((g) => g.dtype))) {
      const panel = add(panels, 'div'), of_type = list.filter((g) => g.dtype === type);
      if (unique(results.map((r) => r.dtype)).length > 1) add(panel, 'h3', {}, type);
      chart(panel, `Engines side by side, ${type}`, (svg, width) => contest(svg, width, of_type, engine_names))();
    }
    for (const g of list) {
      const row = add(body, 'tr');
      for (const key of ['name', 'op', 'dtype', 'layout']) add(row, 'td', {}, g[key]);
      for (const name of engine_names) {
        const r = g.results.find((one) => one.on === name);
        add(row, 'td', { class: 'number' }, r ? digits(r.min_ms) : '');
      }
      add(row, 'td', {}, g.fastest);
      add(row, 'td', { class: 'number' }, digits(g.lead));
    }
  };
};

const single_ops = () => {
  let visible = results;
  const update = () => {
    visible = results.filter(matches);
    count.textContent = `${visible.length} of ${results.length} cases`;
    draw_contest(visible);
    redraw_roofline();
    draw_bars();
    fill_table(visible);
  };
  const count = filters(update);
  const types = unique(results.map((r) => r.dtype));
  const draw_contest = side_by_side();
  const plot = section(main, 'Roofline', 'Every point is one problem with one op. The lines are this machine’s limits, measured in the same run: arithmetic (level) and reading (rising). Point at one (or tap it) to see its own limit.');
  legend(plot, types, engine_names);
  const redraw_roofline = chart(plot, 'Roofline plot', (svg, width) =>
    roofline(svg, width, visible, data.engines.filter((e) => !state.engine || e.label === state.engine)));

  const by_layer = section(main, 'By layer and pass', 'How much of the limit each op reaches, from its fastest call, and how long that takes.');
  legend(by_layer, []);
  const panels = add(by_layer, 'div', { class: 'panels' });
  const engines = unique(results.map((r) => r.engine)), layouts = unique(results.map((r) => `${r.layout} ${is_transposed(r)}`));
  const group_of = (r) => [r.name, ...(engines.length > 1 ? [r.on] : []),
    ...(layouts.length > 2 ? [r.layout] : [])].join(' · ');
  const draw_bars = () => {
    panels.replaceChildren();
    for (const type of types) {
      const rows = visible.filter((r) => r.dtype === type);
      if (rows.length === 0) continue;
      const panel = add(panels, 'div');
      if (types.length > 1) add(panel, 'h3', {}, type);
      chart(panel, `Share of the limit by layer, ${type}`, (svg, width) => bars(svg, width, rows, group_of))();
    }
  };
  const list = section(main, 'All cases', 'Click on a title to sort. GFLOP count two for each multiply-add, bytes count each tensor once.');
  const fill_table = table(list, update);
  update();
};
const is_transposed = (r) => r.op.startsWith('ConvTranspose');

const environment = () => {
  const box = section(main, 'Environment');
  const list = add(box, 'dl');
  for (const [key, value] of data.environment) { add(list, 'dt', {}, key); add(list, 'dd', {}, value); }
};

const on_engine = (r) => engine_names.length > 1 ? `, ${r.on}` : '';
main.replaceChildren();
if (data.training) training(data.training);
else {
  const sorted = results.map((r) => r.share).sort((a, b) => a - b);
  const slowest = results.reduce((a, b) => a.share < b.share ? a : b);
  const fastest = results.reduce((a, b) => a.gflops > b.gflops ? a : b);
  tiles([[`${results.length}`, 'cases measured'],
    [percent(sorted[Math.floor(sorted.length / 2)]), 'of the limit in the median'],
    [`${digits(fastest.gflops)} GFLOP/s`, `highest: ${fastest.name}, ${fastest.dtype}${on_engine(fastest)}`],
    [percent(slowest.share), `furthest from the limit: ${slowest.name}, ${slowest.op}, ${slowest.dtype}${on_engine(slowest)}`]]);
}
if (results.length > 0) single_ops();
environment();
redraw_charts();
document.documentElement.dataset.ready = 'yes';
