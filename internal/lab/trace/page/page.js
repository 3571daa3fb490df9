// The page: the player, then all steps to read and to print.

function start() {
  const data = JSON.parse(document.getElementById('traces').textContent);
  let player = null;
  const show = (traces, of) => {
    if (player) player.pause();
    player = mount(document.getElementById('player'), { ...of, traces });
    document.getElementById('steps').replaceChildren(...traces.map((t, i) => drawAll(t, (of.titles || [])[i], player, i)));
  };
  const { titles, rows } = data;
  if (data.series) choose(data.traces, trace => show([trace], {}));
  else show(data.traces, { titles, rows });
  document.addEventListener('keydown', event => player.key(event));
  const theme = document.getElementById('theme');
  theme.append(icon('theme'));
  document.getElementById('print').append(icon('print'));
  theme.addEventListener('click', () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue('color-scheme');
    const now = dark === 'dark' || dark !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches ? 'light' : 'dark';
    document.documentElement.style.colorScheme = now;
  });
  document.getElementById('print').addEventListener('click', () => print());
  addEventListener('beforeprint', () => player.jump(player.rows.length - 1));
  addEventListener('resize', () => player.go(player.at));
}

// choose lets the reader choose one of several requests, and shows the first.
function choose(traces, show) {
  const select = make('select', { id: 'request' }, traces.map((t, i) => make('option', { value: i }, `${i + 1} of ${traces.length}: ${t.verdict}`)));
  select.addEventListener('change', () => show(traces[select.value]));
  document.getElementById('choice').append(make('label', { for: 'request' }, 'request '), select);
  show(traces[0]);
}

// drawAll draws all steps of a trace: for each visit to a place the chains and a table.
function drawAll(trace, title, player, column) {
  const stops = stopsOf(trace), section = make('section', { class: 'tv-all' }, title && make('h2', {}, title));
  for (const packet of packetsOf(trace)) {
    const mine = stops.filter(s => s.packet.walk === packet.walk);
    section.append(make('h3', {}, `The ${packet.title}`));
    for (const visit of new Set(mine.map(s => s.visit))) section.append(drawVisit(trace, stops, visit, player, column));
    if (packet.walk.end) section.append(make('p', { class: 'tv-end' + (bad(packet.walk.end) ? ' tv-bad' : '') }, sayEnd(packet.walk.end)));
  }
  if (trace.reply && !(trace.reply.steps || []).length) section.append(make('p', { class: 'tv-end tv-bad' }, 'No packet answered.'));
  const facts = [
    ['Connection tracking', (trace.flows || []).map(f => `${f.node}  ${f.flow}`)],
    ['Dropped by the kernel meanwhile, packets of all senders', (trace.losses || []).map(l => `${l.place}  ${l.counter} ${l.packets}: ${l.why}`)],
    ['What the trace could not see', trace.unseen || []],
  ];
  for (const [name, lines] of facts) if (lines.length) section.append(make('h3', {}, name), make('ul', { class: 'tv-facts' }, lines.map(l => make('li', {}, l))));
  return section;
}

function drawVisit(trace, stops, visit, player, column) {
  const mine = stops.filter(s => s.visit === visit);
  const list = make('ol', { class: 'tv-list', start: mine[0].number + 1 }, mine.map(s => drawLine(s, player, column)));
  const maps = sectionsOf(trace, stops, visit).filter(s => s.root).map(s => drawSection(s, null, 1160));
  return make('div', { class: 'tv-visit' }, make('h4', {}, mine[0].step.place), maps.length > 0 && make('div', { class: 'tv-maps tv-scroll', tabindex: 0, role: 'group', 'aria-label': `chains on ${mine[0].step.place}` }, maps), list);
}

function drawLine(stop, player, column) {
  const s = stop.step, button = make('button', { type: 'button' }, say(stop));
  button.addEventListener('click', () => {
    player.jump(player.rows.findIndex(r => r[column] === stop.number));
    player.controls.scrollIntoView({ block: 'nearest' });
    scrollTo({ top: 0 });
  });
  return make('li', {}, button, hookOf(s) && make('span', { class: 'tv-soft' }, ` ${hookOf(s)} ${ruleset(s)}`), s.rule && make('code', {}, s.rule), s.packet && make('code', {}, s.packet),
    s.about && make('span', { class: 'tv-about' }, s.about), s.flow && make('span', { class: 'tv-about' }, s.flow), stop.changed.length > 0 && drawRow(stop),
    stop.changed.some(c => fieldWords[c]) && drawQuoted(stop));
}

// drawRow is the packet as a line, with what the step has changed.
function drawRow(stop) {
  return make('span', { class: 'tv-row' }, '| ', values(stop.after).map((v, i) => [stop.changed.includes(fields[i]) ? make('mark', {}, v || '–') : v || '–', ' | ']));
}
