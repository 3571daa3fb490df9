// What a cell or a scenario links to: what was sent, wanted and seen, and the way of the packet. After page_matrix.js.
const signs = { pass: '✓', known: 'k', fail: '✗', skip: '–', broken: '!' };
const verdicts = { pass: 'passed', known: 'failed as known', fail: 'failed', skip: 'skipped', broken: 'broken' };
const details = new Map(); // of each scenario: the script element with its data, and its line of the matrix
let player = null; // of the trace that is open
let shown = ''; // the address of the detail that was opened last

// make builds an element: make('a', {href: '#'}, 'text', child).
function make(tag, attributes, ...children) {
  const svg = ['svg', 'g', 'rect', 'line', 'path', 'text', 'title', 'defs', 'marker'].includes(tag);
  const e = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...children.filter(c => c !== null && c !== undefined && c !== false));
  return e;
}

const cellAddress = (scenario, proxier) => '#' + encodeURIComponent(scenario) + (proxier ? '/' + encodeURIComponent(proxier) : '');

// addressed returns the scenario and the proxier that the address names.
const addressed = () => location.hash.slice(1).split('/').map(part => {
  try { return decodeURIComponent(part); } catch { return part; }
});

// route does what the address says: #SCENARIO/PROXIER and #SCENARIO open a detail, #?NAME=VALUE&... filters.
function route() {
  const hash = location.hash.slice(1), [scenario, proxier] = addressed();
  if (details.has(scenario)) return open(scenario, proxier);
  if ($('detail').open) $('detail').close();
  if (hash && hash[0] !== '?') return;
  choose(hash.slice(1));
  if (hash.length > 1) form.scrollIntoView();
}

function open(scenario, proxier) {
  const d = $('detail'), data = JSON.parse(details.get(scenario).script.textContent), { row, scenario: about } = data;
  const r = data.results && data.results.find(x => x.proxier === proxier);
  player = null;
  shown = location.hash;
  const close = make('button', { class: 'close', 'aria-label': 'close' }, 'close');
  close.addEventListener('click', () => d.close());
  d.replaceChildren(close, make('h2', { id: 'detail-title' }, scenario, r && ` on ${r.proxier}: `, r && make('span', { class: r.verdict }, verdicts[r.verdict] + (r.cause ? ', ' + r.cause : ''))),
    make('p', {}, about.why), drawOthers(data, r), ...(r ? drawResult(data, r) : []), make('h3', {}, 'about'), drawFacts(data, r));
  if (about.manifest) d.append(make('details', {}, make('summary', {}, 'cluster state and steps, for kubectl'), make('pre', {}, about.manifest)));
  if (!d.open) d.showModal();
  d.scrollTop = 0;
  if (player) player.go(player.at); // there is room to measure now
}

// drawOthers links to the results of the scenario on other proxiers. Without any it is an empty text.
function drawOthers(data, r) {
  const others = (data.results || []).filter(x => x !== r);
  return !others.length ? '' : make('p', { class: 'others quiet' }, r ? 'elsewhere: ' : '',
    ...others.map(x => make('a', { class: x.verdict, href: cellAddress(x.scenario, x.proxier) }, `${signs[x.verdict]} ${x.proxier}`)));
}

function drawFacts({ row, group, scenario }, r) {
  const facts = make('dl', {});
  const fact = (name, value) => value && facts.append(make('dt', {}, name), make('dd', {}, value));
  fact('behaviour', row.behaviour);
  fact('where modes differ', row.modes);
  fact('source', row.source);
  fact('kind', scenario.kind + ((scenario.authorities || []).length ? ', left to implementations by ' + scenario.authorities.join(', ') : ''));
  fact('group and priority', group + ', ' + row.priority);
  fact('needs', r && (r.needs || []).join(', '));
  fact('missing', r && (r.missing || []).join(', '));
  return facts;
}

function drawResult(data, r) {
  const drawing = make('div', {}), probed = r.probed || [], parts = [];
  const list = (title, lines) => lines && parts.push(make('h3', {}, title), make('ul', {}, ...lines.map(l => make('li', {}, l))));
  list('known deviations', r.known);
  list('rows that were not asked', r.not_asked);
  const account = r.reason && make('pre', { class: 'account', tabindex: 0 }, r.reason);
  if (account && probed.length && r.verdict !== 'pass') { // the table has the same
    parts.push(make('p', { class: r.verdict }, r.reason.split('\n')[0]));
  } else if (account) parts.push(make('h3', {}, r.verdict === 'pass' ? 'where it has a choice' : r.verdict === 'skip' ? 'why it was skipped' : 'account'), account);
  if (probed.length) parts.push(make('h3', {}, 'sent, wanted, seen'), drawProbes(data, probed, drawing), drawing);
  else if (r.verdict !== 'skip') parts.push(make('p', { class: 'quiet' }, 'The scenario checks by its own code: it has no rows to show.'));
  if (account && !account.parentElement && !parts.includes(account)) parts.push(make('details', {}, make('summary', {}, 'the account as text'), account));
  if ((r.files || []).length) parts.push(make('h3', {}, 'files'), drawFiles(data, r));
  return parts;
}

// drawFiles links to the files that are beside the page, and names the others.
function drawFiles({ linked }, r) {
  const folder = r.files[0].slice(0, r.files[0].lastIndexOf('/') + 1);
  return make('ul', { class: 'files' }, ...r.files.map(file => {
    const name = folder && file.startsWith(folder) ? file.slice(folder.length) : file;
    return make('li', {}, linked.includes(file) ? make('a', { href: file.split('/').map(encodeURIComponent).join('/') }, name) : name);
  }));
}

// drawProbes is the table of what was sent, what does not hold first. A click on a row draws its way.
function drawProbes({ traces, scenario }, probed, drawing) {
  const body = make('tbody', {}), steps = probed.some(p => p.step);
  const show = (p, tr) => {
    for (const other of body.children) other.removeAttribute('aria-current');
    tr.setAttribute('aria-current', 'true');
    const trace = traces[p.trace];
    player = trace ? showTrace(drawing, trace) : null;
    if (!trace) drawing.replaceChildren(...p.path && p.path.length || scenario.pods ? drawTopology(scenario.pods || {}, p) : []);
  };
  for (const p of [...probed].sort((a, b) => a.holds - b.holds)) {
    const button = make('button', { title: 'draw its way' }, p.probe);
    const verdict = p.holds ? 'pass' : p.known ? 'known' : 'fail';
    const tr = make('tr', {}, make('td', { class: verdict, 'aria-label': p.holds ? 'holds' : 'does not hold' }, signs[verdict]), steps && make('td', { 'data-name': 'step' }, p.step || ''),
      make('td', { 'data-name': 'sent' }, button), make('td', { 'data-name': 'wanted' }, p.want), make('td', { 'data-name': 'seen' }, p.got));
    button.addEventListener('click', () => show(p, tr));
    body.append(tr);
    if (body.children.length === 1) show(p, tr);
  }
  const heads = ['', ...(steps ? ['step'] : []), 'sent', 'wanted', 'seen'].map(t => t ? make('th', { scope: 'col' }, t) : make('td', {}));
  return make('div', { class: 'rows', tabindex: 0, role: 'group', 'aria-label': 'sent, wanted, seen' },
    make('table', { class: 'probes' + (steps ? ' steps' : '') }, make('thead', {}, make('tr', {}, ...heads)), body));
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
  const way = (p.path || []).map(h => h.host).join(' → ');
  const svg = make('svg', { viewBox: `0 0 720 ${170 + 40 * tall}`, role: 'img', class: 'topology' }, make('title', {}, 'the way of the packet: ' + way));
  svg.append(make('line', { class: 'lan', x1: 20, x2: 700, y1: 75, y2: 75 }));
  const box = (name, a) => {
    const w = a.w || 110, h = a.node ? 50 + 40 * a.tall : 30;
    svg.append(make('rect', { class: [a.node && 'node', passed.has(name) && 'on'].filter(Boolean).join(' '), x: a.x - w / 2, y: a.y - 15, width: w, height: h, rx: 5 }),
      make('text', a.node ? { x: a.x - w / 2 + 8, y: a.y + 3, class: 'name' } : { x: a.x, y: a.y + 5 }, name));
  };
  for (const [name, a] of Object.entries(at)) if (a.node) box(name, a);
  for (const [name, a] of Object.entries(at)) if (!a.node) box(name, a);
  svg.append(...drawWay(at, p));
  const which = p.holds ? 'The first packet' : 'The first packet whose result was wrong';
  return [make('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'drawing' }, svg),
    make('p', { class: 'quiet' }, way ? `${which} was seen on ${way}.` : 'No packet was seen on a host.')];
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

const scripts = [...document.querySelectorAll('script.data')];
entries.filter(e => e.scenario).forEach((entry, i) => details.set(entry.scenario, { script: scripts[i], entry }));
$('detail').addEventListener('close', () => {
  const [scenario, proxier] = addressed();
  if ($('detail').open || location.hash !== shown) return; // the address changed, which closed it or opens it again
  history.replaceState(null, '', filterAddress());
  const { cells, tr } = details.get(scenario).entry, link = cells[proxiers.indexOf(proxier)] || tr.querySelector('a');
  if (link.offsetParent) enter(link);
});
addEventListener('hashchange', route);
matrix.addEventListener('click', event => {
  const a = event.target.closest('tbody a');
  if (a && a.hash === location.hash) route(); // the address does not change
});
let entered = false; // by the key that is down: a link of the matrix, which opens the dialog
// The dialog closes with Escape by itself.
document.addEventListener('keydown', event => {
  entered = event.key === 'Enter' && matrix.contains(event.target);
  return $('detail').open ? player && player.key(event) : key(event);
});
// A link acts when Enter goes down, and a button when its character comes: the key would open the dialog and close it.
document.addEventListener('keypress', event => {
  if (entered && $('detail').contains(event.target)) event.preventDefault();
});
if (details.has(addressed()[0])) route();
