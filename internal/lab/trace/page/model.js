// A stop is a step of one of the trace's packets, with the packet before and after it.

// fields are the columns of a tuple, in the order in which the text of viplab trace prints them.
const fields = ['sourceIP', 'sourcePort', 'destinationIP', 'destinationPort', 'mark', 'state'];

// split parts "10.0.0.1:80" and "[fd00::1]:80". A packet without ports has 0.
function split(address) {
  const at = address.lastIndexOf(':');
  return [address.slice(0, at).replace(/^\[|\]$/g, ''), address.slice(at + 1).replace(/^0$/, '')];
}

// joined is the text of an address and its port.
const joined = address => split(address).filter(Boolean).join(address.startsWith('[') ? ' port ' : ':');

function values(tuple) {
  return [...split(tuple.src), ...split(tuple.dst), '0x' + tuple.mark.toString(16), tuple.state || ''];
}

// brief leaves the namespace of the sender, or of the first pod, out of the name of a pod.
function brief(name, trace) {
  const pods = (trace.places || []).filter(p => p.kind === 'pod').map(p => p.name);
  const pod = [trace.from, ...Object.values(trace.names || {}), ...pods].find(n => /^[^/]+\/[^/]+$/.test(n));
  const home = pod ? pod.slice(0, pod.indexOf('/') + 1) : 'default/';
  return name.startsWith(home) ? name.slice(home.length) : name;
}

// packetsOf lists the packets of a trace in the order in which they were sent. The request is there even if nothing has
// seen it.
function packetsOf(trace) {
  return [
    { title: 'request', walk: trace.walk },
    { title: 'connection of the relay', walk: trace.relayed },
    { title: 'reply', walk: trace.reply, back: true },
    ...(trace.errors || []).map(walk => ({ title: 'ICMP error', walk, back: true })),
  ].filter((p, i) => !i || p.walk && p.walk.steps && p.walk.steps.length);
}

// stopsOf returns the stops of all packets. A visit is a stay of a packet at a place.
function stopsOf(trace) {
  const stops = [];
  let visit = -1;
  for (const packet of packetsOf(trace)) {
    let now = packet.walk.first;
    const steps = packet.walk.steps || [], { end } = packet.walk;
    steps.forEach((step, i) => {
      if (!i || step.place !== steps[i - 1].place) visit++;
      const before = step.before || now;
      now = step.after || before;
      stops.push({ packet, step, visit, before, after: now, changed: step.changed || [], end: end && end.step === i ? end : null, number: stops.length });
    });
  }
  return stops.length ? stops : [unseen(trace)];
}

// unseen is the stop of a packet that nothing has seen.
function unseen(trace) {
  const { first, end } = trace.walk, step = { place: end ? end.place : trace.from, kernel: 'no device and no rule has seen the packet' };
  return { packet: packetsOf(trace)[0], step, visit: 0, before: first, after: first, changed: [], end, number: 0 };
}

// hookOf is where a rule or a part of the kernel works, such as "prerouting -100".
const hookOf = step => step.hook ? `${step.hook} ${step.priority || 0}`.replace('-', '−') : '';

// ruleset names the table of a rule.
const ruleset = step => [step.backend, step.family, step.table].filter(Boolean).join(' ');

const outerText = outer => outer.map(o => `${o.proto} ${split(o.src)[0]} → ${split(o.dst)[0]}`).join(', ');

// say tells a step in a sentence.
function say(stop) {
  const s = stop.step;
  if (s.device) {
    const tunnel = s.outer && s.outer.length ? `, inside ${outerText(s.outer)}` : '';
    return s.direction === 'in' ? `${s.place} receives the packet at ${s.device}${tunnel}` : `${s.place} sends the packet out of ${s.device}${tunnel}`;
  }
  if (s.kernel) return `${s.place}: ${s.kernel}`;
  const changed = stop.changed.filter(c => c !== 'state' || stop.changed.length === 1).map(c => fieldWords[c] || c);
  const [verb, ...to] = (s.verdict || '').split(' ');
  if (changed.length && verb !== 'drop') return `${s.place}: a rule of ${s.chain} changes ${changed.join(' and ')}`;
  const words = { jump: 'leads to chain', goto: 'leads to chain', accept: 'lets the packet pass', drop: 'ends the packet', return: 'leads back', continue: 'goes on' };
  return `${s.place}: ${s.rule ? 'a rule of' : 'the policy of'} ${s.chain} ${words[verb] || verb} ${to.join(' ')}`.trim();
}

// sayChanges tells what a step has changed.
function sayChanges(stop) {
  const after = values(stop.after);
  const quoted = stop.changed.some(c => fieldWords[c]) ? sayQuoted(stop.after) : '';
  return [...fields.map((f, i) => stop.changed.includes(f) ? `${f} is now ${after[i] || 'empty'}` : ''), quoted].filter(Boolean).join(', ');
}

// fieldWords are the fields of the packet that an ICMP error quotes.
const fieldWords = { quotedSource: 'the source of the quoted packet', quotedDestination: 'the destination of the quoted packet' };

// sayQuoted tells which packet an ICMP error quotes.
const sayQuoted = tuple => tuple.quoted ? `it quotes ${joined(tuple.quoted.src)} → ${joined(tuple.quoted.dst)}` : '';

// sayEnd tells how a packet ended, and which object of the cluster is the reason.
const sayEnd = end => [end.text, end.why].filter(Boolean).join(' ');

// bad reports whether a packet that ended so was not delivered.
const bad = end => end.outcome !== 'delivered';

// action is the word for what a rule does besides leading elsewhere: what the drawings put beside its chain.
function action(step) {
  const target = / -j ([A-Z]+)\b/.exec(' ' + (step.rule || ''));
  const nft = /\b(dnat|snat|masquerade|redirect|reject|notrack|mark set)\b/.exec(step.rule || '');
  const verb = (step.verdict || '').split(' ')[0];
  if (verb === 'jump' || verb === 'goto') return '';
  if (verb === 'drop') return 'DROP';
  if (step.backend !== 'nftables' && target && !target[1].startsWith('KUBE')) return target[1];
  if (nft) return nft[1].toUpperCase();
  return ['accept', 'return'].includes(verb) ? verb.toUpperCase() : '';
}
