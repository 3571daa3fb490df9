// The drawing of the network: a cable on top, and machines that hang from it by their first device.

const lanY = 24, top_ = 52, gap = 22, podWidth = 132, podTop = 148, podHeight = 42;

// drawNetwork draws the places of a trace. all draws them all, else only those that packets visit.
// Its show(stop) moves the packet, and draws its way so far.
function drawNetwork(trace, stops, all) {
  const spots = arrange(trace, stops, all);
  const svg = draw('svg', { viewBox: `0 0 ${spots.width} ${spots.height}`, role: 'img', class: 'tv-network', style: `min-width: ${Math.round(spots.width * .62)}px` });
  const title = draw('title', {}, '');
  const way = draw('path', { class: 'tv-way' }), tunnel = draw('path', { class: 'tv-tunnel' });
  const dot = draw('g', { class: 'tv-dot' }, draw('circle', { r: 15, class: 'tv-halo' }), draw('circle', { r: 7.5 }));
  const note = draw('text', { class: 'tv-note', y: lanY - 9 });
  svg.append(title, drawLan(spots), ...spots.machines.map(m => drawMachine(m)), tunnel, way, ...spots.machines.map(m => drawInside(m, spots.elements)), dot, note);
  svg.show = stop => {
    const points = wayTo(spots, stops, stop), at = points[points.length - 1];
    way.setAttribute('d', line(points));
    way.setAttribute('class', 'tv-way' + (stop.packet.back ? ' tv-back' : '') + (stop.end && bad(stop.end) ? ' tv-bad' : ''));
    tunnel.setAttribute('d', points.map((p, i) => i && (p.outer || points[i - 1].outer) ? line([points[i - 1], p]) : '').join(' '));
    dot.style.transform = at ? `translate(${at.x - (at.aside || 0)}px, ${at.y}px)` : '';
    dot.setAttribute('class', 'tv-dot' + (stop.packet.back ? ' tv-back' : '') + (stop.end && bad(stop.end) ? ' tv-bad' : ''));
    const outer = stop.step.outer || [];
    note.textContent = outer.length ? outerText(outer) : '';
    if (at) note.setAttribute('x', Math.min(Math.max(at.x, 110), spots.width - 110));
    for (const [name, e] of spots.elements) e.classList.toggle('tv-now', name === stop.step.place + '/' + stop.step.device);
    for (const m of spots.machines) {
      for (const e of [m.box, m.inside]) e.classList.toggle('tv-here', m.place.name === stop.step.place);
      if (m.rules) m.rules.textContent = m.place.name === stop.step.place && stop.step.hook ? stop.step.hook : 'rules';
    }
    title.textContent = `The network, and the way of the ${stop.packet.title} so far: ${visited(stops, stop).join(', ')}`;
    svg.at = at;
  };
  return svg;
}

// visited names the places of a packet's way so far.
function visited(stops, stop) {
  const names = stops.filter(s => s.packet === stop.packet && s.number <= stop.number).map(s => s.step.place);
  return names.filter((n, i) => n !== names[i - 1]);
}

// arrange says where everything stands.
function arrange(trace, stops, all) {
  const places = (trace.places || []).map(p => ({ ...p, short: brief(p.name, trace), devices: devicesOf(p, trace) }));
  const seen = new Set(stops.map(s => s.step.place));
  const of = kind => places.filter(p => p.kind === kind);
  const pods = node => of('pod').filter(p => p.node === node);
  const used = p => seen.has(p.name) || pods(p.name).some(pod => seen.has(pod.name) || concerned(pod, trace));
  let nodes = of('node');
  if (!all || nodes.length > 4) nodes = nodes.filter(used);
  const chosen = [...of('client').filter(p => all || seen.has(p.name)), ...nodes, ...of('router').filter(p => all || seen.has(p.name))];
  const spots = { machines: [], devices: new Map(), rules: new Map(), pods: new Map(), elements: new Map(), height: podTop + podHeight + top_ + 18 };
  let x = 12;
  for (const place of chosen) {
    const m = machine(spots, place, place.kind === 'node' ? choosePods(pods(place.name), seen, trace) : [], x);
    spots.machines.push(m);
    x += m.width + gap;
  }
  spots.width = Math.max(x - gap + 12, 320);
  return spots;
}

// devicesOf returns the devices of a place. The addresses of the packet come first, then those of its family, of them
// the shortest.
function devicesOf(place, trace) {
  const rank = a => (trace.names || {})[a.replace(/\/.*/, '')] ? 0 : a.includes(':') === trace.address.startsWith('[') ? 1 : 2;
  return (place.devices || []).map(d => ({ ...d, addresses: [...(d.addresses || [])].sort((a, b) => rank(a) - rank(b) || a.length - b.length) }));
}

// concerned reports whether a packet has had an address of a pod.
const concerned = (pod, trace) => pod.devices.some(d => d.addresses.some(a => (trace.names || {})[a.replace(/\/.*/, '')]));

// choosePods returns the pods to draw: those on a way first, and no more than three.
function choosePods(pods, seen, trace) {
  const rank = p => seen.has(p.name) ? 0 : concerned(p, trace) ? 1 : p.short !== p.name ? 2 : 3;
  return [...pods].sort((a, b) => rank(a) - rank(b)).slice(0, 3).map(p => ({ ...p, more: pods.length }));
}

// machine arranges the devices of a machine: the one on the cable at its top, tunnels on the right, a bridge in the
// middle, and pods below.
function machine(spots, place, pods, x) {
  const node = place.kind === 'node';
  const width = node ? Math.max(300, pods.length * (podWidth + 10) + 20) : 140;
  const m = { place, x, width, node, pods: [], devices: [], height: node ? podTop + podHeight + 10 : 64 };
  const put = (device, dx, dy, wide) => {
    const spot = { device, x: x + dx, y: top_ + dy, wide, aside: (wide || 84) / 2, place: place.name };
    spots.devices.set(place.name + '/' + device.name, spot);
    m.devices.push(spot);
    return spot;
  };
  const devices = place.devices.filter(d => d.kind !== 'loopback');
  const first = devices.find(d => d.kind === 'veth' && !d.bridge && d.addresses.length) || devices[0];
  if (first) put(first, node ? 64 : width / 2, 0);
  if (node) {
    spots.rules.set(place.name, { x: x + width / 2, y: top_ + 68, aside: 52 });
    const inner = devices.filter(d => ['vxlan', 'ipip', 'ip6tnl', 'sit', 'dummy'].includes(d.kind) && d.name !== 'tunl0' || d.name === 'tunl0' && d.addresses.length);
    inner.slice(0, 2).forEach((d, i) => put(d, width - 58, 46 + 30 * i));
    const bridge = devices.find(d => d.kind === 'bridge');
    if (bridge) put(bridge, width / 2, 110, width - 24);
  } else {
    spots.rules.set(place.name, { x: x + width / 2, y: top_ + 40 });
  }
  pods.forEach((pod, i) => {
    const px = x + 10 + (width - 20) * (i + .5) / pods.length;
    const spot = { place: pod, x: px, y: top_ + podTop + 4 };
    m.pods.push(spot);
    spots.pods.set(pod.name, spot);
    spots.rules.set(pod.name, { x: px, y: spot.y + podHeight / 2, aside: podWidth / 2 });
    for (const d of pod.devices) {
      spots.devices.set(pod.name + '/' + d.name, { device: d, x: px, y: spot.y + podHeight / 2, aside: podWidth / 2, place: pod.name });
      if (d.peer && d.peer.place === place.name) spots.devices.set(place.name + '/' + d.peer.device, { x: px, y: top_ + 126, place: place.name, pod: pod.name });
    }
  });
  return m;
}

function drawLan(spots) {
  const ends = spots.machines.flatMap(m => m.devices.slice(0, 1));
  return draw('g', { class: 'tv-lan' }, draw('line', { x1: 6, x2: spots.width - 6, y1: lanY, y2: lanY }),
    ends.map(e => draw('line', { x1: e.x, x2: e.x, y1: lanY, y2: e.y })));
}

const address = d => (d.addresses[0] || '').replace(/\/.*/, '');

function drawMachine(m) {
  m.box = draw('g', { class: 'tv-machine tv-' + m.place.kind },
    draw('rect', { x: m.x, y: top_, width: m.width, height: m.height, rx: 9 }),
    m.node ? label({ x: m.x + 118, y: top_ + 20, class: 'tv-name' }, m.place.name, 14) : label({ x: m.x + m.width / 2, y: top_ + 32, class: 'tv-name tv-mid' }, m.place.name, 16));
  if (m.devices[0]) m.box.append(m.node ? label({ x: m.x + 118, y: top_ + 35, class: 'tv-small' }, address(m.devices[0].device), 24) : label({ x: m.x + m.width / 2, y: top_ + 49, class: 'tv-small tv-mid' }, address(m.devices[0].device), 22));
  return m.box;
}

// drawInside draws what is in a machine. It is above the way.
function drawInside(m, elements) {
  const inside = draw('g', {});
  if (m.node) {
    m.rules = draw('text', { class: 'tv-mid tv-rules', x: m.x + m.width / 2, y: top_ + 72 }, 'rules');
    inside.append(draw('rect', { class: 'tv-kernel', x: m.x + m.width / 2 - 52, y: top_ + 54, width: 104, height: 28, rx: 14 }), m.rules);
  }
  for (const d of m.devices) {
    const e = drawDevice(d);
    elements.set(m.place.name + '/' + d.device.name, e);
    inside.append(e);
  }
  inside.append(...m.pods.map(p => drawPod(m, p)));
  return m.inside = inside;
}

function drawDevice(spot) {
  const { device: d } = spot, wide = spot.wide || 84, text = spot.wide ? `${d.name}  ${address(d)}` : d.name;
  const kind = d.kind === 'veth' ? '' : d.kind;
  return draw('g', { class: 'tv-device tv-is-' + d.kind }, draw('title', {}, [d.name, d.kind, ...d.addresses.slice(0, 4)].join(' ')),
    draw('rect', { x: spot.x - wide / 2, y: spot.y - 11, width: wide, height: 22, rx: 5 }),
    label({ class: 'tv-mid', x: spot.x, y: spot.y + 4 }, kind && !spot.wide && !d.name.startsWith(kind) ? `${d.name} ${kind}` : text, spot.wide ? 40 : 13));
}

function drawPod(m, spot) {
  const pod = spot.place, port = top_ + 126;
  const ip = address(pod.devices.find(d => d.kind !== 'loopback') || { addresses: [] });
  return draw('g', { class: 'tv-pod' }, draw('title', {}, `pod ${pod.name} ${ip}`),
    draw('line', { x1: spot.x, x2: spot.x, y1: port - 5, y2: spot.y }), draw('circle', { cx: spot.x, cy: port, r: 3.5 }),
    draw('rect', { x: spot.x - podWidth / 2, y: spot.y, width: podWidth, height: podHeight - 4, rx: 7 }),
    label({ class: 'tv-mid tv-podname', x: spot.x, y: spot.y + 16 }, shorten(pod.short, 17)), label({ class: 'tv-mid tv-small', x: spot.x, y: spot.y + 31 }, ip, 22));
}

// wayTo returns the points of a packet's way until a stop. Between machines it goes along the cable.
function wayTo(spots, stops, stop) {
  const points = [];
  let last = null;
  for (const s of stops) {
    if (s.packet !== stop.packet || s.number > stop.number) continue;
    const device = s.step.device && spots.devices.get(s.step.place + '/' + s.step.device);
    const at = device || !s.step.device && spots.rules.get(s.step.place);
    if (!at) continue;
    const outer = Boolean(s.step.outer && s.step.outer.length);
    if (last && last.place !== s.step.place && device && !spots.pods.has(s.step.place) && !spots.pods.has(last.place)) {
      const from = points[points.length - 1];
      points.push({ x: from.x, y: lanY, outer }, { x: at.x, y: lanY, outer });
    }
    if (last && last.place === s.step.place) points.push({ ...elbow(points[points.length - 1], at), outer });
    points.push({ x: at.x, y: at.y, aside: at.aside, pod: at.pod, outer });
    last = s.step;
  }
  return [...points, ...arrival(spots, stop)];
}

// elbow is the corner between two points in a machine: above a pod, else below the upper one if it is on the left. So ways
// keep clear of names and of other pods.
function elbow(a, b) {
  if (a.pod || b.pod) return a.pod ? { x: a.x, y: b.y } : { x: b.x, y: a.y };
  return a.y < b.y ? { x: a.x, y: b.y } : { x: b.x, y: a.y };
}

// arrival is the pod behind the last device, if the packet was delivered there.
function arrival(spots, stop) {
  const port = stop.end && !bad(stop.end) && stop.step.device && spots.devices.get(stop.step.place + '/' + stop.step.device);
  const pod = port && spots.pods.get(port.pod);
  return pod ? [{ x: pod.x, y: pod.y + podHeight / 2, aside: podWidth / 2 }] : [];
}

const line = points => points.map((p, i) => `${i ? 'L' : 'M'}${p.x},${p.y}`).join(' ');
