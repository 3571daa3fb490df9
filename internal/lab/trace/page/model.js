// A stop is a step of one of the trace's packets, with the packet before and after it.

// fields are the columns of a tuple, in the order in which the text of viplab trace prints them.
const fields = ['sourceIP', 'sourcePort', 'destinationIP', 'destinationPort', 'mark', 'state'];

// split parts "10.0.0.1:80" and "[fd00::1]:80".
function split(address) {
  const at = address.lastIndexOf(':');
  return [address.slice(0, at).replace(/^\[|\]$/g, ''), address.slice(at + 1)];
}

function values(tuple) {
  return [...split(tuple.src), ...split(tuple.dst), '0x' + tuple.mark.toString(16), tuple.state || ''];
}

// packetsOf lists the packets of a trace in the order in which they were sent.
function packetsOf(trace) {
  return [
    { title: 'request', walk: trace.walk },
    { title: 'connection of the relay', walk: trace.relayed },
    { title: 'reply', walk: trace.reply, back: true },
    ...(trace.errors || []).map(walk => ({ title: 'ICMP error', walk, back: true })),
  ].filter(p => p.walk && p.walk.steps && p.walk.steps.length);
}

// stopsOf returns the stops of all packets. A visit is a stay of a packet at a place.
function stopsOf(trace) {
  const stops = [];
  let visit = -1;
  for (const packet of packetsOf(trace)) {
    let now = packet.walk.first;
    packet.walk.steps.forEach((step, i) => {
      if (!i || step.place !== packet.walk.steps[i - 1].place) visit++;
      const before = step.before || now;
      now = step.after || before;
      const end = packet.walk.end && packet.walk.end.step === i ? packet.walk.end : null;
      stops.push({ packet, step, visit, before, after: now, changed: step.changed || [], end, number: stops.length });
    });
  }
  return stops;
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
  const changed = stop.changed.filter(c => c !== 'state' || stop.changed.length === 1);
  const [verb, ...to] = (s.verdict || '').split(' ');
  if (changed.length && verb !== 'drop') return `${s.place}: a rule of ${s.chain} changes ${changed.join(' and ')}`;
  const words = { jump: 'leads to chain', goto: 'leads to chain', accept: 'lets the packet pass', drop: 'ends the packet', return: 'leads back', continue: 'goes on' };
  return `${s.place}: ${s.rule ? 'a rule of' : 'the policy of'} ${s.chain} ${words[verb] || verb} ${to.join(' ')}`.trim();
}

// sayChanges tells what a step has changed.
function sayChanges(stop) {
  const after = values(stop.after);
  return fields.map((f, i) => stop.changed.includes(f) ? `${f} is now ${after[i] || 'empty'}` : '').filter(Boolean).join(', ');
}

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
