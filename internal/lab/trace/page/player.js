// mount shows traces in an element, one or two side by side. For two of them data has titles and rows: which stops stand
// side by side, -1 for none.
function mount(element, data) {
  const columns = data.traces.map((trace, i) => new Column(trace, (data.titles || [])[i] || '', data.traces.length === 1));
  const rows = data.rows || columns[0].stops.map((_, i) => columns.map(() => i));
  const player = new Player(columns, rows);
  element.classList.add('tv');
  element.replaceChildren(player.controls, player.live, make('div', { class: 'tv-columns', 'data-columns': columns.length }, columns.map(c => c.element)));
  player.go(Math.max(data.start || 0, 0));
  return player;
}

// Column shows one trace.
class Column {
  constructor(trace, title, alone) {
    this.trace = trace;
    this.title = title;
    this.stops = stopsOf(trace);
    this.alone = alone;
    this.networks = new Map();
    this.network = make('div', { class: 'tv-box tv-scroll', tabindex: 0, role: 'group', 'aria-label': 'network' });
    this.card = make('div', { class: 'tv-card' });
    this.tuple = make('div', { class: 'tv-scroll tv-tuple', tabindex: 0, role: 'group', 'aria-label': 'the packet before and after' });
    this.chains = make('div', { class: 'tv-box tv-map', tabindex: 0, role: 'group', 'aria-label': 'map of the chains so far' });
    this.element = make('section', { class: 'tv-column', 'aria-label': title || 'packet' }, make('h2', { class: !title && 'tv-hidden' }, title || 'The packet'), this.network,
      make('div', { class: 'tv-pair' }, this.card, this.tuple), this.chains);
  }

  // show shows a stop. It is not here if the other trace is alone at it.
  show(number, here) {
    const stop = this.stops[number];
    this.element.classList.toggle('tv-absent', !here);
    if (!stop) return;
    this.showNetwork(stop);
    this.card.classList.toggle('tv-failed', Boolean(stop.end && bad(stop.end)));
    this.card.replaceChildren(...drawCard(stop, this.stops.length, here));
    this.tuple.replaceChildren(...drawTuple(stop, this.trace));
    this.showChains(stop);
  }

  showNetwork(stop) {
    if (!(this.trace.places || []).length) {
      this.network.hidden = true;
      return;
    }
    const all = this.alone && (this.network.clientWidth || 1000) > 700;
    if (!this.networks.has(all)) this.networks.set(all, drawNetwork(this.trace, this.stops, all));
    const svg = this.networks.get(all);
    if (svg.parentNode !== this.network) this.network.replaceChildren(svg);
    svg.show(stop);
    if (svg.at) reveal(this.network, svg, svg.at.x, svg.at.y);
  }

  showChains(stop) {
    const sections = sectionsOf(this.trace, this.stops, stop.visit).filter(s => s.stops[0].number <= stop.number);
    const room = Math.max(280, (this.chains.clientWidth || 1000) - 26);
    const body = make('div', { class: 'tv-sections' });
    this.chains.replaceChildren(make('h3', {}, `Chains on ${stop.step.place} so far`, !sections.length && ': none'), body);
    let now = null;
    for (const s of sections) {
      const drawn = drawSection(s, stop, room);
      body.append(drawn);
      if (s.stops.includes(stop)) now = drawn;
    }
    const at = now || body.lastElementChild || body;
    this.chains.scrollTo({ top: at.offsetTop - this.chains.offsetTop - 30 });
  }
}

function drawSection(section, stop, room) {
  const body = section.kernel ? make('p', { class: 'tv-kernelstep' + (section.stops.includes(stop) ? ' tv-now' : '') }, section.kernel) : drawChains(section, stop, room);
  return make('div', { class: 'tv-section' }, make('h4', {}, section.title), body);
}

// drawCard tells a stop in words.
function drawCard(stop, count, here) {
  const s = stop.step, where = [stop.packet.title, s.place, hookOf(s), ruleset(s)].filter(Boolean);
  return [
    make('p', { class: 'tv-where' }, where.join(' · '), !here && make('em', {}, ' (no such step)')),
    make('p', { class: 'tv-say' }, say(stop)),
    s.rule && make('pre', { class: 'tv-rule' }, s.rule),
    s.packet && make('pre', { class: 'tv-rule' }, s.packet),
    s.about && make('p', { class: 'tv-about' }, s.about),
    s.flow && make('p', { class: 'tv-about' }, s.flow),
    ...drawEnd(stop),
  ].filter(Boolean);
}

// drawEnd tells how a packet ended. Of a rule that ended it, which stands above, it only tells what that did.
function drawEnd({ end, step }) {
  const words = end ? [step.verdict === 'drop' && step.chain ? end.outcome[0].toUpperCase() + end.outcome.slice(1) : end.text, end.why] : [];
  return words.filter(Boolean).map(w => make('p', { class: 'tv-end' + (bad(end) ? ' tv-bad' : '') }, w));
}

// drawTuple draws the packet before and after a stop, with what has changed, and the packet that it quotes.
function drawTuple(stop, trace) {
  const names = trace.names || {};
  const before = values(stop.before), after = values(stop.after);
  const cell = (text, i, changed) => make('td', { role: 'cell', class: changed && 'tv-changed' }, changed ? make('mark', {}, text || '–') : text || '–',
    (i === 0 || i === 2) && names[text] && make('small', {}, shorten(brief(names[text], trace), 18)));
  const row = (title, texts, mark) => make('tr', { role: 'row' }, make('th', { role: 'rowheader', scope: 'row' }, title), texts.map((t, i) => cell(t, i, mark && stop.changed.includes(fields[i]))));
  return [make('table', { role: 'table' }, make('caption', {}, 'the packet'),
    make('thead', { role: 'rowgroup' }, make('tr', { role: 'row' }, make('td', { role: 'cell' }), fields.map(f => make('th', { role: 'columnheader', scope: 'col' }, f)))),
    make('tbody', { role: 'rowgroup' }, row('before', before, false), row('after', after, true))), drawQuoted(stop)].filter(Boolean);
}

// drawQuoted draws the packet that an ICMP error quotes, after a stop.
function drawQuoted(stop) {
  const quoted = stop.after.quoted, end = (name, address) => make(stop.changed.includes(name) ? 'mark' : 'span', {}, joined(address));
  return quoted && make('p', { class: 'tv-quoted' }, 'it quotes ', end('quotedSource', quoted.src), ' → ', end('quotedDestination', quoted.dst));
}

// icons are paths in a square of 16.
const icons = {
  first: 'M3 3h2v10H3z M13 3v10L6 8z', back: 'M11 3v10L4 8z', play: 'M4 2v12l9-6z', pause: 'M4 3h3v10H4z M9 3h3v10H9z', next: 'M5 3v10l7-5z',
  theme: 'M8 1a7 7 0 1 0 .01 0z M8 3v10a5 5 0 0 1 0-10z', print: 'M4 1h8v3H4z M2 5h12v6h-2V9H4v2H2z M5 10h6v5H5z',
  last: 'M11 3h2v10h-2z M3 3v10l7-5z', change: 'M2 3v10l5-5z M11 4a4 4 0 1 0 .01 0z',
};
const icon = sign => draw('svg', { viewBox: '0 0 16 16', width: 16, height: 16, 'aria-hidden': 'true', class: 'tv-icon' }, draw('path', { d: icons[sign] }));

// Player goes through the rows, by buttons, by keys, or by itself.
class Player {
  constructor(columns, rows) {
    this.columns = columns;
    this.rows = rows;
    this.at = 0;
    this.timer = 0;
    this.live = make('p', { class: 'tv-hidden', 'aria-live': 'polite', role: 'status' });
    const button = (sign, title, act) => {
      const b = make('button', { type: 'button', 'aria-label': title, title }, icon(sign));
      b.addEventListener('click', act);
      return b;
    };
    this.play = button('play', 'play (space)', () => this.toggle());
    this.range = make('input', { type: 'range', min: 0, max: rows.length - 1, value: 0, 'aria-label': 'step' });
    this.range.addEventListener('input', () => { this.pause(); this.go(Number(this.range.value)); });
    this.count = make('output', { class: 'tv-count' });
    this.controls = make('div', { class: 'tv-controls', role: 'toolbar', 'aria-label': 'steps' },
      button('first', 'first step (Home)', () => this.jump(0)), button('back', 'step back (left arrow)', () => this.jump(this.at - 1)), this.play,
      button('next', 'step forward (right arrow)', () => this.jump(this.at + 1)), button('last', 'last step (End)', () => this.jump(rows.length - 1)),
      button('change', 'next change of the packet (C)', () => this.change()),
      make('div', { class: 'tv-track' }, this.drawTrack(), this.range), this.count);
  }

  // drawTrack draws the visits as bands, and a tick for each change.
  drawTrack() {
    const track = make('div', { class: 'tv-bands', 'aria-hidden': 'true' });
    const first = this.columns[0].stops;
    let band = null, visit = -1;
    this.rows.forEach((row, i) => {
      const stops = row.map((n, c) => this.columns[c].stops[n]).filter(Boolean), lead = stops[0];
      if (row[0] >= 0 && first[row[0]].visit !== visit || !band) {
        visit = row[0] >= 0 ? first[row[0]].visit : visit;
        track.append(band = make('span', { class: lead.packet.back && 'tv-back', title: `${lead.packet.title}: ${lead.step.place}` }, make('b', {}, brief(lead.step.place, this.columns[0].trace))));
        band.steps = 0;
      }
      band.steps++;
      band.style.flexGrow = band.steps;
      if (stops.some(s => s.changed.length)) track.append(make('i', { style: `left: calc(8px + (100% - 16px) * ${i / Math.max(this.rows.length - 1, 1)})` }));
    });
    return track;
  }

  go(row) {
    this.at = Math.min(Math.max(row, 0), this.rows.length - 1);
    const told = this.columns.map((column, c) => {
      let i = this.at;
      while (i > 0 && this.rows[i][c] < 0) i--;
      const number = Math.max(this.rows[i][c], 0), here = this.rows[this.at][c] >= 0;
      column.show(number, here);
      const stop = column.stops[number];
      return here ? [column.title && column.title + ':', say(stop) + '.', sayChanges(stop), stop.end && sayEnd(stop.end)].filter(Boolean).join(' ') : '';
    });
    const text = `Step ${this.at + 1} of ${this.rows.length}. ${told.filter(Boolean).join(' ')}`;
    this.live.textContent = text;
    this.range.value = this.at;
    this.range.setAttribute('aria-valuetext', text);
    this.count.textContent = `${this.at + 1} / ${this.rows.length}`;
  }

  jump(row) {
    this.pause();
    this.go(row);
  }

  // change goes to the next stop that changes the packet.
  change() {
    const changes = i => this.rows[i].some((n, c) => n >= 0 && this.columns[c].stops[n].changed.length);
    for (let k = 1; k <= this.rows.length; k++) {
      const i = (this.at + k) % this.rows.length;
      if (changes(i)) return this.jump(i);
    }
  }

  toggle() {
    if (this.timer) return this.pause();
    if (this.at === this.rows.length - 1) this.go(0);
    const step = () => {
      this.go(this.at + 1);
      this.timer = this.at < this.rows.length - 1 ? setTimeout(step, this.pace()) : 0;
      if (!this.timer) this.pause();
    };
    this.timer = setTimeout(step, 300);
    this.play.replaceChildren(icon('pause'));
    this.play.setAttribute('aria-label', 'pause (space)');
  }

  // pace is how long a step is shown, in milliseconds: longer if it changes the packet.
  pace() {
    return this.rows[this.at].some((n, c) => n >= 0 && this.columns[c].stops[n].changed.length) ? 2600 : 1100;
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.play.replaceChildren(icon('play'));
    this.play.setAttribute('aria-label', 'play (space)');
  }

  // key takes the keys of the player. It leaves those of form fields and buttons alone.
  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest('input, select, textarea')) return;
    const act = {
      ArrowRight: () => this.jump(this.at + 1), ArrowLeft: () => this.jump(this.at - 1), PageDown: () => this.jump(this.at + 1), PageUp: () => this.jump(this.at - 1),
      Home: () => this.jump(0), End: () => this.jump(this.rows.length - 1), c: () => this.change(),
      ' ': event.target.closest('button, a, summary') ? null : () => this.toggle(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}
