'use strict';
// The matrix: which lines it shows, in which order, and how keys move in it. page_detail.js opens what a cell links to.
const $ = id => document.getElementById(id);
const form = $('filters'), matrix = $('matrix');
const proxiers = [...matrix.tHead.rows[0].cells].slice(1).map(c => c.textContent);
const words = { bad: 'failed', fail: 'failed', broken: 'was broken', known: 'failed as known', pass: 'passed', skip: 'was skipped', changed: 'changed' };

// entries are the lines: a scenario each, or a row of the catalogue that has none.
const entries = [...matrix.querySelectorAll('tbody[data-group] tr[data-text]')].map(tr => {
  const cells = [...tr.cells].slice(1).map(td => td.firstElementChild);
  return { tr, cells, body: tr.parentElement, ...tr.dataset, group: tr.parentElement.dataset.group, scenario: tr.querySelector('a.id') && tr.querySelector('a.id').textContent };
});
const bodies = [...matrix.querySelectorAll('tbody[data-group]')];
let order = '';

// has reports whether a cell has a verdict or, of a skip, a cause.
const has = (cell, verdict) => cell && (cell.classList.contains(verdict) || verdict === 'bad' && cell.matches('.fail, .broken'));

// filter shows the lines that the form chooses. Of a proxier, it shows that column alone.
function filter() {
  const by = Object.fromEntries(new FormData(form)), text = by.text.trim().toLowerCase(), column = proxiers.indexOf(by.proxier);
  const fits = e => (!text || e.text.includes(text)) && (!by.group || e.group === by.group) && (!by.priority || e.priority === by.priority) &&
    (!by.kind || e.kind === by.kind) && (column < 0 || e.cells[column]) &&
    (!by.verdict || (by.verdict === 'none' ? !e.scenario : column < 0 ? e.cells.some(c => has(c, by.verdict)) : has(e.cells[column], by.verdict)));
  sort(by.order, column);
  const shown = new Map(bodies.map(b => [b, 0]));
  let sum = 0;
  for (const e of entries) {
    const on = Boolean(fits(e));
    if (e.tr.hidden === on) e.tr.hidden = !on;
    if (on) {
      sum++;
      shown.set(e.body, shown.get(e.body) + 1);
    }
  }
  for (const [body, n] of shown) body.hidden = !n || order === 'time';
  only(column);
  $('count').textContent = `${sum} of ${entries.length}`;
  $('empty').hidden = sum > 0;
  if (!sum) sayEmpty(by);
}

// only hides all columns but one, or none for -1.
function only(column) {
  if (column < 0) matrix.removeAttribute('data-only');
  else matrix.dataset.only = column;
}

// sort puts the slowest lines first, or all back into their groups.
function sort(by, column) {
  const sorted = $('sorted'), time = by === 'time';
  if (time) {
    const took = e => Math.max(-1, ...e.cells.map((c, i) => c && (column < 0 || i === column) ? +c.dataset.ms : -1));
    const key = new Map(entries.map(e => [e, took(e)]));
    sorted.append(...[...entries].sort((a, b) => key.get(b) - key.get(a)).map(e => e.tr));
  } else if (order) for (const e of entries) e.body.append(e.tr);
  order = by;
  sorted.hidden = !time;
  matrix.classList.toggle('times', time);
}

function sayEmpty(by) {
  const alone = words[by.verdict] && !by.text && !by.group && !by.priority && !by.kind;
  const all = document.createElement('a');
  all.href = '#?';
  all.textContent = 'Show all.';
  $('empty').replaceChildren(alone ? `No scenario ${words[by.verdict]}${by.proxier ? ' on ' + by.proxier : ''}. ` : 'No scenario is like that. ', all);
}

// filterAddress is the part of the page's address that says what the form chooses.
const filterAddress = () => '#?' + new URLSearchParams([...new FormData(form)].filter(([, v]) => v));

// choose sets the form to what the address says.
function choose(address) {
  const by = new URLSearchParams(address);
  for (const field of form.elements) if (field.name) field.value = by.get(field.name) || '';
  filter();
}

// move focuses the next link of the matrix that an arrow key points to.
function move(event) {
  const from = document.activeElement.closest && document.activeElement.closest('#matrix tbody a');
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!from || !step) return;
  event.preventDefault();
  const seen = [...matrix.querySelectorAll('tbody:not([hidden]) tr[data-text]:not([hidden])')];
  const linkOf = (tr, i) => tr && tr.cells[i] && tr.cells[i].querySelector('a');
  const visible = a => a && a.offsetParent;
  let row = seen.indexOf(from.closest('tr')), column = from.closest('td, th').cellIndex, to = null;
  do {
    row += step[0];
    column += step[1];
    to = linkOf(seen[row], column);
  } while (!visible(to) && seen[row] && seen[row].cells[column]);
  if (visible(to)) enter(to);
}

// enter makes a link the one of the matrix that Tab goes to, and focuses it.
function enter(link) {
  for (const a of matrix.querySelectorAll('tbody a[tabindex="0"]')) a.tabIndex = -1;
  link.tabIndex = 0;
  link.focus();
}

// key takes the keys of the page: "/" goes to the search, arrows from cell to cell.
function key(event) {
  if (event.key !== '/' || document.activeElement === $('text')) return move(event);
  event.preventDefault();
  $('text').focus();
}

$('only').textContent = proxiers.map((_, i) => `#matrix[data-only="${i}"] tr > :nth-child(n+2):not(:nth-child(${i + 2})) { display: none; }`).join('\n');
for (const a of matrix.querySelectorAll('tbody a')) a.tabIndex = -1;
const firstLink = matrix.querySelector('tbody a');
if (firstLink) firstLink.tabIndex = 0;
matrix.addEventListener('click', event => {
  const a = event.target.closest('tbody a');
  if (a) enter(a);
});
form.addEventListener('input', () => {
  filter();
  history.replaceState(null, '', filterAddress());
});
form.addEventListener('submit', event => event.preventDefault());
choose(location.hash.startsWith('#?') ? location.hash.slice(2) : '');
