'use strict';
const report = JSON.parse(document.getElementById('report').textContent);
const groups = JSON.parse(document.getElementById('groups').textContent) || [];
const traces = JSON.parse(document.getElementById('traces').textContent) || {};
let player = null; // of the trace that is open
const signs = { pass: '✓', known: 'k', fail: '✗', skip: '–', broken: '!' };
const words = { pass: 'passed', known: 'failed as known', fail: 'failed', skip: 'skipped', broken: 'broken' };
const $ = id => document.getElementById(id);

// make builds an element: make('a', {href: '#'}, 'text', child).
function make(tag, attributes, ...children) {
  const svg = ['svg', 'g', 'rect', 'line', 'path', 'text', 'title', 'defs', 'marker'].includes(tag);
  const e = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...children.filter(c => c !== null && c !== undefined));
  return e;
}

const time = ms => ms >= 1000 ? (ms / 1000).toFixed(2) + 's' : ms + 'ms';
const results = new Map(report.results.map(r => [r.scenario + '\n' + r.proxier, r]));

// entries are the lines of the matrix: a scenario each, or a row that has none.
const entries = groups.flatMap(g => g.rows.flatMap(row =>
  (row.scenarios && row.scenarios.length ? row.scenarios : [null]).map(s => ({ group: g, row, scenario: s }))));

function drawHead() {
  $('about').textContent = [report.cluster, report.kernel && 'kernel ' + report.kernel, report.suite.version].filter(Boolean).join(' · ');
  for (const p of report.proxiers) {
    $('sums').append(make('li', {}, make('b', {}, p.name), ' ', make('span', { class: p.verdict === 'fail' ? 'fail' : 'pass' }, p.verdict),
      ` ${p.passed} passed, ${p.known} known, ${p.failed} failed, ${p.broken} broken; ${p.not_applicable} not applicable, ${p.not_offered} not offered, ${p.not_implemented} not implemented, ${p.not_run} not run${p.not_asked ? `; ${p.not_asked} rows not asked` : ''}`));
  }
  document.querySelector('#matrix thead').append(make('tr', {}, make('th', { scope: 'col' }, 'scenario'), make('th', { scope: 'col' }, 'P'), make('th', { scope: 'col' }, 'kind'),
    ...report.proxiers.map(p => make('th', { scope: 'col' }, p.name))));
  for (const g of groups) $('group').append(make('option', { value: g.name }, g.name));
}

function drawRow(e) {
  const tr = make('tr', e.scenario || e.row.test ? {} : { class: 'none' });
  tr.append(make('th', { scope: 'row', title: e.scenario ? e.scenario.why : e.row.behaviour }, e.scenario ? e.scenario.id : e.row.id), make('td', {}, e.row.priority), make('td', {}, e.scenario ? e.scenario.kind : ''));
  for (const p of report.proxiers) {
    const r = e.scenario && results.get(e.scenario.id + '\n' + p.name);
    if (!r) {
      tr.append(make('td', {}, e.scenario ? '' : e.row.test || 'no scenario'));
      continue;
    }
    const took = r.verdict === 'skip' ? '' : ' ' + time(r.took_ms);
    const button = make('button', { class: 'cell ' + r.verdict, 'aria-label': `${e.scenario.id} on ${p.name}: ${words[r.verdict]}${took}` },
      signs[r.verdict] + took);
    button.addEventListener('click', () => open(e, r));
    tr.append(make('td', {}, button));
  }
  if (!e.scenario && !report.proxiers.length) tr.append(make('td', {}, e.row.test || 'no scenario'));
  e.verdicts = e.scenario ? report.proxiers.map(p => (results.get(e.scenario.id + '\n' + p.name) || {}).verdict) : ['none'];
  e.text = [e.row.id, e.scenario && e.scenario.id, e.scenario && e.scenario.why, e.row.behaviour].filter(Boolean).join(' ').toLowerCase();
  return e.tr = tr;
}

function drawMatrix() {
  for (const g of groups) {
    const body = make('tbody', {});
    const mine = entries.filter(e => e.group === g);
    body.append(make('tr', {}, make('th', { scope: 'rowgroup', colspan: 3 + report.proxiers.length }, g.title)), ...mine.map(drawRow));
    g.body = body;
    $('matrix').append(body);
  }
}

function filter() {
  const text = $('text').value.trim().toLowerCase(), group = $('group').value, priority = $('priority').value, verdict = $('verdict').value, kind = $('kind').value;
  let shown = 0;
  for (const e of entries) {
    const on = (!text || e.text.includes(text)) && (!group || e.group.name === group) &&
      (!priority || e.row.priority === priority) && (!kind || e.scenario && e.scenario.kind === kind) && (!verdict || e.verdicts.includes(verdict));
    e.tr.hidden = !on;
    shown += on;
  }
  for (const g of groups) g.body.hidden = !entries.some(e => e.group === g && !e.tr.hidden);
  $('count').textContent = `${shown} of ${entries.length} rows`;
}

// open shows what was sent, wanted and seen, and the way of the packet.
function open(e, r) {
  const d = $('detail'), drawing = make('div', {});
  player = null;
  const close = make('button', { class: 'close', 'aria-label': 'close' }, 'close');
  close.addEventListener('click', () => d.close());
  const facts = make('dl', {});
  const fact = (name, value) => value && facts.append(make('dt', {}, name), make('dd', {}, value));
  fact('behaviour', e.row.behaviour);
  fact('where modes differ', e.row.modes);
  fact('source', e.row.source);
  fact('kind', e.scenario.kind + ((e.scenario.authorities || []).length ? ', left to implementations by ' + e.scenario.authorities.join(', ') : ''));
  fact('group and priority', e.group.title + ', ' + e.row.priority);
  fact('missing', (r.missing || []).join(', '));
  fact('files', (r.files || []).join(', '));
  d.replaceChildren(close, make('h2', { id: 'detail-title' }, `${e.scenario.id} on ${r.proxier}: `, make('span', { class: r.verdict }, words[r.verdict])), make('p', {}, e.scenario.why));
  if (r.known) d.append(make('h3', {}, 'known deviations'), make('pre', {}, r.known.join('\n')));
  if (r.not_asked) d.append(make('h3', {}, 'rows that were not asked'), make('pre', {}, r.not_asked.join('\n')));
  if (r.reason) d.append(make('h3', {}, r.verdict === 'pass' ? 'where it has a choice' : 'account'), make('pre', { class: 'account', tabindex: 0 }, r.reason));
  if (r.probed) d.append(make('h3', {}, 'sent, wanted, seen'), drawing, drawProbes(e, r.probed, drawing));
  d.append(make('h3', {}, 'about'), facts);
  d.append(make('details', {}, make('summary', {}, 'cluster state and steps, for kubectl'), make('pre', {}, e.scenario.manifest)));
  d.showModal();
  if (player) player.go(player.at); // there is room to measure now
}

function drawProbes(e, probed, drawing) {
  const body = make('tbody', {});
  const show = (p, tr) => {
    for (const other of body.children) other.removeAttribute('aria-current');
    tr.setAttribute('aria-current', 'true');
    const trace = traces[p.trace];
    player = trace ? showTrace(drawing, trace) : null;
    if (!trace) drawing.replaceChildren(p.path || e.scenario.pods ? drawTopology(e.scenario.pods || {}, p) : '');
  };
  for (const p of probed) {
    const button = make('button', { title: 'draw its way' }, p.probe);
    const tr = make('tr', {}, make('td', { class: p.holds ? 'pass' : 'fail' }, p.holds ? signs.pass : signs.fail), make('td', { 'data-name': 'step' }, p.step || ''),
      make('td', { 'data-name': 'sent' }, button), make('td', { 'data-name': 'wanted' }, p.want), make('td', { 'data-name': 'seen' }, p.got));
    button.addEventListener('click', () => show(p, tr));
    body.append(tr);
  }
  const first = Math.max(probed.findIndex(p => !p.holds), 0);
  if (probed.length) show(probed[first], body.children[first]);
  return make('table', { class: 'probes' }, make('thead', {}, make('tr', {}, ...['', 'step', 'sent', 'wanted', 'seen'].map(t => make('th', {}, t)))), body);
}

// places says where each host stands in the drawing: outside hosts above the network, nodes below it, pods on their nodes.
function places(pods, path) {
  const at = { client: { x: 200, y: 25 }, router: { x: 520, y: 25 } };
  const on = { n1: [], n2: [], n3: [] };
  for (const [pod, node] of Object.entries(pods)) (on[node] ||= []).push(pod);
  for (const h of path || []) {
    if (h.node && !(on[h.node] ||= []).includes(h.host)) on[h.node].push(h.host);
    if (!h.node && !at[h.host] && !on[h.host]) on[h.host] = [];
  }
  const width = 720 / Object.keys(on).length;
  Object.keys(on).forEach((node, i) => {
    at[node] = { x: width * (i + .5), y: 130, node: true, w: width - 16, tall: Math.ceil(on[node].length / 2) };
    on[node].forEach((pod, k) => {
      at[pod] = { x: width * i + width * (k % 2 ? .73 : .27), y: 180 + 40 * Math.floor(k / 2), w: width / 2 - 18, pod: true };
    });
  });
  return at;
}

function drawTopology(pods, p) {
  const at = places(pods, p.path), passed = new Set((p.path || []).map(h => h.host));
  const tall = Math.max(...Object.values(at).map(a => a.tall || 0));
  const svg = make('svg', { viewBox: `0 0 720 ${170 + 40 * tall}`, role: 'img', class: 'topology' }, make('title', {}, 'the way of the packet: ' + (p.path || []).map(h => h.host).join(' → ')));
  svg.append(make('line', { class: 'lan', x1: 20, x2: 700, y1: 75, y2: 75 }));
  const box = (name, a) => {
    const w = a.w || 110, h = a.node ? 50 + 40 * a.tall : 30;
    svg.append(make('rect', { class: [a.node && 'node', passed.has(name) && 'on'].filter(Boolean).join(' '), x: a.x - w / 2, y: a.y - 15, width: w, height: h, rx: 5 }),
      make('text', { x: a.x, y: a.y + 5 }, name));
  };
  for (const [name, a] of Object.entries(at)) if (a.node) box(name, a);
  for (const [name, a] of Object.entries(at)) if (!a.node) box(name, a);
  svg.append(...drawWay(at, p));
  return svg;
}

// drawWay is the packet's way as an arrow. What goes between hosts that are not on one node crosses the network.
function drawWay(at, p) {
  const hops = (p.path || []).filter(h => at[h.host]);
  const line = hops.map((h, i) => {
    const a = at[h.host], before = i && at[hops[i - 1].host];
    if (!i) return `M${a.x},${a.y + (a.pod ? -15 : 15)}`;
    const crosses = !a.pod && !before.pod;
    return (crosses ? `L${before.x},75 L${a.x},75 ` : '') + `L${a.x},${a.y + (a.pod ? -15 : a.node ? 18 : 15)}`;
  }).join(' ');
  const marker = make('marker', { id: 'tip', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: 'auto' },
    make('path', { d: 'M0,0 L8,4 L0,8 z', fill: p.holds ? 'var(--accent)' : 'var(--fail)' }));
  return [make('defs', {}, marker), make('path', { class: p.holds ? 'way' : 'way bad', d: line, 'marker-end': 'url(#tip)' })];
}

// Arrow keys go from verdict to verdict, "/" to the search. The dialog closes with Escape by itself.
function key(event) {
  if ($('detail').open) {
    if (player) player.key(event);
    return;
  }
  if (event.key === '/' && document.activeElement !== $('text')) {
    event.preventDefault();
    $('text').focus();
    return;
  }
  const cell = document.activeElement.closest && document.activeElement.closest('.cell');
  if (!cell || !event.key.startsWith('Arrow')) return;
  const rows = [...document.querySelectorAll('#matrix tbody:not([hidden]) tr:not([hidden])')].filter(r => r.querySelector('.cell'));
  const row = cell.closest('tr'), column = cell.parentElement.cellIndex;
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  const to = rows[rows.indexOf(row) + step[0]];
  const next = to && to.cells[column + step[1]] && to.cells[column + step[1]].querySelector('.cell');
  if (next) {
    event.preventDefault();
    next.focus();
  }
}

drawHead();
drawMatrix();
filter();
$('filters').addEventListener('input', filter);
$('filters').addEventListener('submit', event => event.preventDefault());
document.addEventListener('keydown', key);
