// make builds an element of HTML: make('a', {href: '#'}, 'text', child).
function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// draw builds an element of SVG.
function draw(tag, attributes, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function fill(e, attributes, children) {
  for (const [k, v] of Object.entries(attributes || {})) if (v !== undefined && v !== false) e.setAttribute(k, v);
  e.append(...children.flat(Infinity).filter(c => c !== null && c !== undefined && c !== false));
  return e;
}

// label draws a text that is cut to a number of characters.
function label(attributes, text, most) {
  const cut = most && text.length > most ? text.slice(0, most - 1) + '…' : text;
  return draw('text', attributes, cut);
}

// shorten cuts the middle out of a name that is too long: the end tells the pods of a Deployment apart.
const shorten = (name, most) => name.length > most ? name.slice(0, most - 7) + '…' + name.slice(-6) : name;

// reveal scrolls a box sideways, and up and down, so that a point of its drawing is in the middle.
function reveal(box, svg, x, y) {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width || 1;
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  box.scrollTo({ left: x * scale - box.clientWidth / 2, top: y * scale - box.clientHeight / 2, behavior: still ? 'auto' : 'smooth' });
}
