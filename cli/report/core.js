'use strict';
// Helpers: elements, numbers, scales, the tooltip.

const data = JSON.parse(document.getElementById('data').textContent);

const add = (parent, tag, attributes = {}, text = '') => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== '') node.textContent = text;
  parent.append(node);
  return node;
};
const draw = (parent, tag, attributes = {}, text = '') => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== '') node.textContent = text;
  parent.append(node);
  return node;
};

// Pixels that a text takes in the charts' font.
const width_of = (() => {
  const context = document.createElement('canvas').getContext('2d');
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return (text) => context.measureText(text).width;
})();
const shortened = (text, room) => {
  if (width_of(text) <= room) return text;
  let length = text.length - 1;
  while (length > 1 && width_of(`${text.slice(0, length)}…`) > room) length--;
  return `${text.slice(0, length)}…`;
};

// Three significant digits, without exponents.
const digits = (x) => {
  if (x === 0) return '0';
  const places = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(x))));
  return x.toLocaleString('en', { maximumFractionDigits: Math.min(places, 6) });
};
const percent = (x) => `${(100 * x).toFixed(x < 0.0995 ? 1 : 0)} %`;
const duration = (ms) => ms < 0.1 ? `${digits(1000 * ms)} µs` : `${digits(ms)} ms`;
const unique = (list) => [...new Set(list)];
const extent = (list) => list.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);

const linear = (from, to, low, high) => (x) => low + (x - from) / (to - from) * (high - low);
const logarithmic = (from, to, low, high) => {
  const scale = linear(Math.log10(from), Math.log10(to), low, high);
  return (x) => scale(Math.log10(x));
};
// Round numbers within [from, to]: about `count` of them.
const ticks = (from, to, count) => {
  const rough = (to - from) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => power * m >= rough * 0.999);
  const list = [];
  for (let i = Math.ceil(from / step); i * step <= to * 1.0001; i++) list.push(+(i * step).toPrecision(12));
  return list;
};
// Powers of ten; where they are few and there is room, 2 and 5 times them too.
const powers = (from, to, room) => {
  const list = [];
  const between = room && to / from < 1000 ? [1, 2, 5] : [1];
  for (let i = Math.floor(Math.log10(from)); i <= Math.log10(to); i++) list.push(...between.map((m) => m * 10 ** i));
  return list.filter((t) => t >= from * 0.9999 && t <= to * 1.0001);
};

const tip = document.getElementById('tip');
const show_tip = (event, title, lines) => {
  tip.replaceChildren();
  add(tip, 'b', {}, title);
  for (const line of lines) add(tip, 'div', {}, line);
  tip.hidden = false;
  const { offsetWidth: w, offsetHeight: h } = tip;
  const x = Math.min(event.clientX + 14, innerWidth - w - 6);
  const above = event.clientY - h - 12;
  tip.style.left = `${Math.max(6, x)}px`;
  tip.style.top = `${above > 6 ? above : event.clientY + 16}px`;
};
const hide_tip = () => { tip.hidden = true; };
const with_tip = (node, title, lines, enter, leave) => {
  node.addEventListener('pointerenter', (event) => { show_tip(event, title, lines); if (enter) enter(); });
  node.addEventListener('pointerleave', () => { hide_tip(); if (leave) leave(); });
};

// Draws now, and again whenever the width changes: paint(svg, width) returns the height.
let charts = [];
const chart = (parent, label, paint) => {
  const box = add(parent, 'div', { class: 'chart' });
  const svg = draw(box, 'svg', { role: 'img', 'aria-label': label });
  const redraw = () => {
    const width = Math.max(240, box.clientWidth);
    svg.replaceChildren();
    const height = paint(svg, width);
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.setAttribute('height', height);
  };
  charts.push({ box, redraw, width: 0 });
  return redraw;
};
const redraw_charts = () => {
  charts = charts.filter((c) => c.box.isConnected);
  for (const c of charts) {
    if (c.width === c.box.clientWidth) continue;
    c.width = c.box.clientWidth;
    c.redraw();
  }
};
addEventListener('resize', redraw_charts);
addEventListener('scroll', hide_tip, { passive: true });

// Colour tells the pass, shape the type.
const passes = { forward: 'forward', data: 'gradient of src', weights: 'gradient of weights' };
const pass_of = (op) => op.endsWith('Weights') ? 'weights' : op.endsWith('Data') ? 'data' : 'forward';
const marker = (type, x, y, r) => ({
  f32: `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  bf16: `M${x - r * 0.9} ${y - r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}z`,
  f16: `M${x} ${y - r * 1.15}l${r * 1.1} ${r * 2}h${-r * 2.2}z`,
})[type];
// Engines: the first one's marks are filled, those of the others are not.
const engine_names = data.engines.map((e) => e.name);
const hollow = (name) => engine_names.indexOf(name) > 0;
const engine_marker = (index, x, y, r) => marker(['f32', 'f32', 'bf16', 'f16'][Math.max(0, Math.min(index, 3))], x, y, r);
const legend = (parent, types, engines = []) => {
  const box = add(parent, 'div', { class: 'legend' });
  const item = (text, shape, style) => {
    const span = add(box, 'span');
    draw(draw(span, 'svg', { width: 12, height: 12 }), 'path', { d: shape, class: style });
    span.append(text);
  };
  for (const [pass, text] of Object.entries(passes)) item(text, marker('bf16', 6, 6, 5.5), pass);
  if (types.length > 1) for (const type of types) item(type, marker(type, 6, 6, 5), 'other');
  if (engines.length > 1) for (const name of engines) item(name, engine_marker(engine_names.indexOf(name), 6, 6, 5), hollow(name) ? 'other hollow' : 'other');
};
