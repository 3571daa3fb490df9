// The map of the chains that a packet meets during a visit to a place: a tree for each base chain, drawn from what is
// programmed. Chains that the packet does not go to are faint.

const boxHeight = 36, rowHeight = 42, chainGap = 26;

// sectionsOf groups the rules of a visit by base chain. Parts of the kernel stand between them.
function sectionsOf(trace, stops, visit) {
  const sections = [];
  let key = '';
  for (const stop of stops.filter(s => s.visit === visit && !s.step.device)) {
    const s = stop.step;
    if (!s.chain) {
      sections.push({ title: s.hook ? hookOf(s) : 'kernel', kernel: s.kernel, stops: [stop] });
      key = '';
      continue;
    }
    const now = [s.hook, s.priority, s.backend, s.family, s.table].join(' ');
    if (now !== key) sections.push({ title: `${hookOf(s)} · ${ruleset(s)}`, stops: [] });
    key = now;
    sections[sections.length - 1].stops.push(stop);
  }
  for (const section of sections) if (!section.kernel) section.root = tree(trace, section.stops);
  return sections;
}

// tree returns the chains of a section as a tree. A chain that the packet has been in, or was led to, has stops.
function tree(trace, stops) {
  const known = name => (trace.chains || []).find(c => c.name === name && c.place === stops[0].step.place &&
    c.backend === stops[0].step.backend && c.family === stops[0].step.family && c.table === stops[0].step.table) || {};
  const node = (name, stop) => ({ name, about: known(name).about || '', rules: known(name).rules, since: stop ? stop.number : Infinity, children: [], actions: [] });
  const root = node(stops[0].step.chain, stops[0]), latest = new Map([[root.name, root]]);
  for (const stop of stops) {
    const from = latest.get(stop.step.chain) || root;
    const [verb, to] = (stop.step.verdict || '').split(' ');
    if (stop.step.about && !from.about) from.about = stop.step.about;
    if (verb === 'jump' || verb === 'goto') {
      let child = from.children.find(c => c.name === to);
      if (!child) from.children.push(child = node(to, stop));
      latest.set(to, child);
      if (stop.step.about) child.about = child.about || stop.step.about;
    } else if (action(stop.step)) {
      from.actions.push({ text: action(stop.step), stop });
    }
  }
  addOthers(root, known, node);
  return root;
}

// addOthers adds the chains that the packet could have gone to, in the order of the rules, and how many more there are.
function addOthers(at, known, node) {
  for (const child of at.children) addOthers(child, known, node);
  const { targets = [], others } = known(at.name);
  at.children.push(...targets.filter(t => !at.children.some(c => c.name === t)).map(t => node(t)));
  at.children.sort((a, b) => targets.indexOf(a.name) - targets.indexOf(b.name));
  if (!others) return;
  const rest = { name: `and ${others.toLocaleString('en')} other chains`, since: Infinity, children: [], actions: [], rest: true };
  const last = at.children.findLastIndex(c => c.since < Infinity);
  at.children.splice(last < 0 ? at.children.length : last, 0, rest);
}

// prune leaves out the chains that the packet does not go to.
const prune = n => ({ ...n, children: n.children.filter(c => c.since < Infinity).map(prune) });

// place gives each chain of a tree its place: in columns from left to right, or below one another if there is no room.
function placeChains(root, room) {
  const depth = n => 1 + Math.max(0, ...n.children.map(depth)), columns = depth(root);
  const wide = Math.min(190, Math.max(138, room / columns - chainGap));
  const flat = columns * (wide + chainGap) <= room + 1;
  const all = [];
  let row = 0;
  const visit = (n, level, parent) => {
    const spot = { node: n, parent, level, x: flat ? level * (wide + chainGap) : level * 20, y: 0, wide: flat ? wide : Math.min(230, room - level * 20 - 4) };
    all.push(spot);
    if (!flat) spot.y = row++ * (rowHeight - 4);
    n.children.forEach(c => visit(c, level + 1, spot));
    if (flat) spot.y = n.children.length ? all.find(s => s.parent === spot).y : row++ * rowHeight;
    return spot;
  };
  visit(root, 0, null);
  return { all, flat, height: row * (flat ? rowHeight : rowHeight - 4), width: Math.max(...all.map(s => s.x + s.wide + s.node.actions.length * 8)) };
}

// drawChains draws a section. A stop says how far the packet is; without one it draws all.
function drawChains(section, stop, room) {
  const past = stop && section.stops[section.stops.length - 1].number < stop.number && !section.stops.includes(stop);
  const { all, flat, width, height } = placeChains(past ? prune(section.root) : section.root, room);
  const far = stop ? stop.number : Number.MAX_VALUE;
  const names = all.filter(s => s.node.since <= far).map(s => s.node.name).join(', ');
  const svg = draw('svg', { viewBox: `0 0 ${Math.max(width + 8, 60)} ${height}`, width: Math.max(width + 8, 60), height, role: 'img', class: 'tv-chains' }, draw('title', {}, `Chains of ${section.title} so far: ${names}`));
  for (const s of all) if (s.parent) svg.append(edge(s, flat, s.node.since <= far));
  for (const s of all) svg.append(chainBox(s, stop, far));
  const here = stop && all.find(s => s.node.name === stop.step.chain && s.node.since <= far);
  svg.at = here && { x: here.x + here.wide / 2, y: here.y + boxHeight / 2 };
  return svg;
}

function edge(s, flat, met) {
  const p = s.parent, y = s.y + boxHeight / 2;
  const from = p.x + p.wide, middle = from + chainGap / 2;
  const d = flat ? `M${from},${p.y + boxHeight / 2} C${middle},${p.y + boxHeight / 2} ${middle},${y} ${s.x - 1},${y}`
    : `M${p.x + 9},${p.y + boxHeight} V${y} H${s.x}`;
  return draw('path', { d, class: 'tv-edge' + (met ? ' tv-met' : '') });
}

function chainBox(s, stop, far) {
  const n = s.node, met = n.since <= far, here = met && stop && stop.step.chain === n.name;
  const done = n.actions.filter(a => a.stop.number <= far);
  const g = draw('g', { class: 'tv-chain' + (met ? ' tv-met' : '') + (here ? ' tv-now' : '') + (n.rest ? ' tv-rest' : '') },
    draw('title', {}, [n.name, n.about].filter(Boolean).join(': ')),
    draw('rect', { x: s.x + .5, y: s.y + .5, width: s.wide, height: boxHeight - 1, rx: 6 }),
    label({ class: 'tv-chainname', x: s.x + 9, y: s.y + 15 }, n.name, Math.floor((s.wide - 16) / 6.9)));
  let x = s.x + 9;
  for (const a of done) {
    const wide = a.text.length * 8 + 9;
    g.append(draw('g', { class: 'tv-action' + (a.text === 'DROP' ? ' tv-drop' : '') }, draw('rect', { x, y: s.y + 19, width: wide, height: 13, rx: 6.5 }), label({ x: x + 5, y: s.y + 29 }, a.text)));
    x += wide + 4;
  }
  const about = (n.about || '').split('; ')[0].replaceAll('default/', '') || (n.rules === 0 ? 'no rules' : '');
  if (!n.rest) g.append(label({ class: 'tv-small', x, y: s.y + 29 }, about, Math.max(0, Math.floor((s.x + s.wide - x - 4) / 6.2))));
  return g;
}
