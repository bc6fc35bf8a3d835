'use strict';
(() => {
  const SVG = document.querySelector('svg').namespaceURI;
  const PAGE = 10;
  const [FIRST, FEWEST_FIRST] = [6, 3]; // rows that a page opens with, shared by its lists
  const FIRST_WORDS = 60; // characters of a question in its row
  const FILTERED_FROM = 4; // rows of a table
  const LONG = 1200; // characters of a question before it is folded

  const node = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const drawn = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // Like the template filter of that name: allows a long name to wrap after each of its parts.
  const breakable = (name) => {
    const made = node('span', 'of');
    name.split(/(?<=[_/])/).forEach((part) => made.append(part, node('wbr')));
    return made;
  };
  const signed = (value, decimals) => value.toFixed(decimals).replace('-', '−');
  const plural = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;
  const letter = (i) => (i < 26 ? String.fromCharCode(65 + i) : String(i + 1));

  // ---- tables: sorting and filtering

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.order !== undefined) return cell.dataset.order === '' ? null : Number(cell.dataset.order);
    const text = cell.querySelector('.value').textContent.trim();
    return text === '–' ? null : text;
  };
  const compare = (a, b) => (typeof a === 'number' ? a - b : a.localeCompare(b, 'en', {numeric: true}));

  // Undefined values stay last in both directions.
  const sorted = (rows, column, way) => {
    const keyed = rows.map((row) => [keyOf(row, column), row]);
    const undefinedLast = (a, b) => (a === null) - (b === null);
    keyed.sort(([a], [b]) => (a === null || b === null ? undefinedLast(a, b) : way * compare(a, b)));
    return keyed.map(([, row]) => row);
  };

  const NEXT = {none: 'ascending', ascending: 'descending', descending: 'none'};

  const makeSortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const published = [...body.rows];
    heads.forEach((head, column) => {
      const button = node('button', '', head.textContent.trim());
      button.type = 'button';
      head.replaceChildren(button);
      head.setAttribute('aria-sort', 'none');
      button.addEventListener('click', () => {
        const way = NEXT[head.getAttribute('aria-sort')];
        heads.forEach((other) => other.setAttribute('aria-sort', 'none'));
        head.setAttribute('aria-sort', way);
        const rows = way === 'none' ? published : sorted(published, column, way === 'ascending' ? 1 : -1);
        body.append(...rows);
      });
    });
  };

  const makeFilterable = (tabled) => {
    const controls = tabled.querySelector('.controls');
    const filter = controls.querySelector('.filter');
    const level = controls.querySelector('.level');
    const rows = [...tabled.querySelector('tbody').rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const show = () => {
      const wanted = filter.value.trim().toLowerCase();
      let n = 0;
      rows.forEach((row, i) => {
        row.hidden = !texts[i].includes(wanted) || Boolean(level && level.value && row.dataset.level !== level.value);
        n += !row.hidden;
      });
      controls.querySelector('.shown').textContent = `${n.toLocaleString('en')} of ${plural(rows.length, 'row')} shown`;
    };
    filter.addEventListener('input', show);
    if (level) level.addEventListener('change', show);
    controls.hidden = rows.length < FILTERED_FROM;
    show();
  };

  // A table that is wider than its window says so.
  const makeCued = (tabled) => {
    const [box, cue] = [tabled.querySelector('.scroll'), tabled.querySelector('.cue')];
    const show = () => {
      cue.hidden = box.scrollWidth <= box.clientWidth;
      box.classList.toggle('wide', !cue.hidden && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    };
    new ResizeObserver(show).observe(box);
    box.addEventListener('scroll', show, {passive: true});
    show();
  };

  // ---- one question: the log-likelihood of each order

  const steps = (low, high) => {
    const size = 10 ** Math.floor(Math.log10((high - low) / 2));
    const step = [size, 2 * size, 5 * size, 10 * size].find((tried) => (high - low) / tried <= 4);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({length: Math.floor(high / step + 1e-9) - first + 1}, (_, i) => (first + i) * step);
  };

  const dotLine = (values) => {
    const known = values.map((value, order) => ({value, order})).filter((point) => point.value !== null);
    const low = Math.min(...known.map((point) => point.value));
    const high = Math.max(...known.map((point) => point.value), low + 1e-2);
    const [width, height, left, top, bottom] = [340, 210, 44, 20, 36];
    const x = (order) => left + 8 + (order / Math.max(1, values.length - 1)) * (width - left - 18);
    const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
    const published = known.find((point) => point.order === 0);
    const others = known.filter((point) => point.order > 0);
    const best = others.reduce((a, b) => (a && a.value >= b.value ? a : b), null);
    const name = `Log-likelihoods of ${values.length} orders of the options`
      + (published ? `; the published order ${signed(published.value, 2)} nats` : '')
      + (best ? `; the best other order ${signed(best.value, 2)} nats` : '');

    const svg = drawn('svg', {class: 'chart', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': name});
    svg.append(drawn('title', {}, name));
    const decimals = high - low < 2 ? 2 : high - low < 10 ? 1 : 0;
    for (const value of steps(low, high)) {
      svg.append(drawn('line', {class: 'grid', x1: left, x2: width - 4, y1: y(value), y2: y(value)}));
      svg.append(drawn('text', {x: left - 5, y: y(value) + 3.5, 'text-anchor': 'end'}, signed(value, decimals)));
    }
    svg.append(drawn('polyline', {class: 'trace', points: known.map((p) => `${x(p.order)},${y(p.value)}`).join(' ')}));
    const mark = (point) => {
      const at = {class: `order${point === best ? ' best-other' : ''}`, cx: x(point.order), cy: y(point.value), r: 2.6};
      const dot = drawn('circle', at);
      dot.append(drawn('title', {}, `order ${point.order}: ${signed(point.value, 2)} nats`));
      svg.append(dot);
    };
    known.forEach(mark);
    if (best) {
      svg.append(drawn('circle', {class: 'best', cx: x(best.order), cy: y(best.value), r: 5.5}));
      const anchor = best.order > values.length / 2 ? 'end' : 'start';
      const shift = anchor === 'end' ? -9 : 9;
      svg.append(drawn('text', {class: 'named', x: x(best.order) + shift, y: y(best.value) - 5, 'text-anchor': anchor}, 'best other'));
    }
    if (published) {
      const place = `translate(${x(0)} ${y(published.value)})`;
      svg.append(drawn('path', {class: 'published', transform: place, d: 'M0 -7.5L7.5 0L0 7.5L-7.5 0Z'}));
      svg.append(drawn('text', {class: 'named', x: x(0) + 11, y: y(published.value) - 5}, 'published'));
    }
    const last = values.length - 1;
    for (const order of new Set([0, Math.round(last / 2), last])) {
      svg.append(drawn('text', {x: x(order), y: height - 21, 'text-anchor': 'middle'}, String(order)));
    }
    svg.append(drawn('text', {class: 'axis', x: (width + left) / 2, y: height - 5, 'text-anchor': 'middle'}, 'order of the options (0: published)'));
    const figure = node('figure');
    figure.append(node('figcaption', '', 'Log-likelihood of each order (nats)'), svg);
    return figure;
  };

  // ---- one question: its text

  const folded = (text) => {
    const box = node('div');
    box.append(node('p', 'whole', text));
    if (text.length <= LONG) return box;
    box.className = 'folded';
    const button = node('button', 'unfold', 'Show the whole question');
    button.type = 'button';
    button.setAttribute('aria-expanded', 'false');
    button.addEventListener('click', () => {
      const isFolded = box.classList.toggle('folded');
      button.setAttribute('aria-expanded', String(!isFolded));
      button.textContent = isFolded ? 'Show the whole question' : 'Fold the question';
    });
    box.append(button);
    return box;
  };

  const optionList = (entry) => {
    const list = node('ol', 'options');
    entry.o.forEach((option, i) => {
      const item = node('li', i === entry.a ? 'answer' : '');
      const text = node('span', '', option);
      if (i === entry.a) text.append(' ', node('b', '', '✓ answer'));
      item.append(node('span', '', `${letter(i)}.`), text);
      list.append(item);
    });
    return list;
  };

  const NO_TEXT = 'The log does not have the text of this question.';
  const beginning = (text) => {
    const line = text.trim();
    if (line.length <= FIRST_WORDS) return line || NO_TEXT;
    return `${line.slice(0, FIRST_WORDS).replace(/\s+\S*$/, '')} …`;
  };

  // The orders by their scores, the most likely one first.
  const orderList = (entry) => {
    const list = node('ol', 'orders');
    const known = entry.l.map((value, order) => ({value, order})).filter((point) => point.value !== null);
    known.sort((a, b) => b.value - a.value || a.order - b.order);
    for (const {value, order} of known) {
      const item = node('li');
      item.append(node('code', '', entry.p[order] || `order ${order}`), ` ${signed(value, 2)}`);
      if (order === 0) item.append(' ', node('b', '', 'published'));
      list.append(item);
    }
    return list;
  };

  const bodyOf = (entry) => {
    const body = node('div', 'body');
    const words = node('div');
    const text = entry.q.trim();
    words.append(text ? folded(text) : node('p', 'facts', NO_TEXT), optionList(entry));
    words.append(node('p', 'facts', `In the run: ${entry.r.length ? entry.r.join('; ') : 'not scored'}.`));
    if (entry.m !== null) {
      const margin = `${entry.m > 0 ? '+' : ''}${signed(entry.m, 2)} nats`;
      words.append(node('p', 'facts', `Margin of the published order: ${margin}.`));
    }
    words.append(node('p', 'facts', `Guards: ${entry.g.length ? entry.g.join(', ') : 'none'}.`));
    body.append(words);
    if (entry.l.some((value) => value !== null)) {
      const orders = node('div');
      orders.append(dotLine(entry.l), node('p', 'facts', 'In numbers, the most likely order first:'), orderList(entry));
      body.append(orders);
    } else {
      body.append(node('p', 'facts', 'The log has no log-likelihoods for its orders.'));
    }
    return body;
  };

  const itemOf = (entry) => {
    const item = node('li');
    const details = node('details');
    const summary = node('summary');
    const score = node('span', 'score', entry.z === null ? '–' : signed(entry.z, 3));
    score.prepend(node('span', 'unseen', 'score '));
    summary.append(score, breakable(entry.b));
    summary.append(node('span', 'stem', beginning(entry.q)));
    details.append(summary);
    details.addEventListener('toggle', () => {
      if (details.open && details.children.length === 1) details.append(bodyOf(entry));
    });
    item.append(details);
    return item;
  };

  // ---- the list of flagged questions, a page at a time

  const makeList = (section, _, {length: nLists}) => {
    const data = section.querySelector('script[type="application/json"]');
    if (!data) return;
    const entries = JSON.parse(data.textContent);
    const texts = entries.map((e) => [e.q, ...e.o, e.b, ...e.r, ...e.g].join('\n').toLowerCase());
    const [controls, list, more] = ['.controls', '.questions', '.more'].map((name) => section.querySelector(name));
    const [filter, subject, status] = ['.filter', '.subject', '.shown'].map((name) => controls.querySelector(name));
    const places = [...new Set(entries.map((entry) => entry.b))].sort((a, b) => a.localeCompare(b, 'en', {numeric: true}));
    places.forEach((place) => subject.append(new Option(place, place)));
    subject.parentElement.hidden = places.length < 2;

    let found = [];
    const showMore = (size = PAGE) => {
      const n = list.children.length;
      list.append(...found.slice(n, n + size).map(itemOf));
      const left = found.length - list.children.length;
      more.hidden = left === 0;
      more.textContent = left > PAGE ? `Show ${PAGE} more of ${left.toLocaleString('en')}` : `Show ${left} more`;
      return list.children[n];
    };
    const show = () => {
      const wanted = filter.value.trim().toLowerCase();
      const isWanted = (entry, i) => texts[i].includes(wanted) && (!subject.value || entry.b === subject.value);
      found = entries.filter(isWanted);
      status.textContent = `${found.length.toLocaleString('en')} of ${plural(entries.length, 'question')}`;
      list.replaceChildren();
      showMore(wanted || subject.value ? PAGE : Math.max(FEWEST_FIRST, Math.floor(FIRST / nLists)));
    };
    filter.addEventListener('input', show);
    subject.addEventListener('change', show);
    more.addEventListener('click', () => showMore().querySelector('summary').focus());
    controls.hidden = entries.length <= PAGE;
    show();
  };

  // ---- commands

  const copied = async (code) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return true;
    } catch {
      getSelection().selectAllChildren(code);
      return document.execCommand('copy');
    }
  };

  const makeCopying = (button) => {
    const label = button.firstChild;
    button.hidden = false;
    button.addEventListener('click', async () => {
      label.textContent = (await copied(button.previousElementSibling)) ? 'Copied' : 'Press Ctrl+C';
      setTimeout(() => { label.textContent = 'Copy'; }, 2000);
    });
  };

  // Charts are printed; afterwards they are folded as before.
  const parts = [...document.querySelectorAll('.part:not([open])')];
  addEventListener('beforeprint', () => parts.forEach((part) => { part.open = true; }));
  addEventListener('afterprint', () => parts.forEach((part) => { part.open = false; }));
  document.querySelectorAll('.copying').forEach(makeCopying);
  document.querySelectorAll('.sortable').forEach(makeSortable);
  document.querySelectorAll('.tabled').forEach(makeFilterable);
  document.querySelectorAll('.tabled').forEach(makeCued);
  document.querySelectorAll('.flagged').forEach(makeList);
})();
