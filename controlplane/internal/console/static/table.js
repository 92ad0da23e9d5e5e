// A list as a table: columns that sort, pages, and rows that stand still under the pointer.
import {html, useRef} from './ui.js';
import {setQuery} from './router.js';

// useSteady keeps the order of the rows while the pointer or the focus is among
// them, so that no row moves under a click or loses the focus.
function useSteady(list, id) {
  const held = useRef(false);
  const last = useRef([]);
  if (held.current) {
    const place = new Map(last.current.map((key, i) => [key, i]));
    list = [...list].sort((a, b) => (place.get(id(a)) ?? Infinity) - (place.get(id(b)) ?? Infinity) || 0);
  }
  last.current = list.map(id);
  const inside = e => e.currentTarget.matches(':hover') || e.currentTarget.contains(document.activeElement);
  return [list, {
    onMouseEnter: () => { held.current = true; }, onMouseLeave: e => { held.current = inside(e); },
    onFocusIn: () => { held.current = true; },
    onFocusOut: e => { held.current = e.currentTarget.contains(e.relatedTarget) || e.currentTarget.matches(':hover'); },
  }];
}

// Table shows rows; id names one. A column has a title, cell(row), and perhaps: number (align right), sort (the field that the
// list is sorted by), className, hidden (its title is not shown). The first one heads the row. With details(row), something
// below a row is shown. sort is the order of an address without one; next is the list's cursor of the next page.
export function Table({name, columns, rows, id, query = {}, sort, next, details}) {
  const [steady, holding] = useSteady(rows, id);
  const at = query.sort ?? sort ?? '';
  return html`
    ${columns.some(c => c.sort) && html`<${SortBy} columns=${columns} at=${at} />`}
    <div class="across"><table class="${name} cards" ...${holding}>
      <thead><tr>${columns.map(c => html`<${Head} key=${c.title} column=${c} at=${at} />`)}</tr></thead>
      <tbody>${steady.map(row => html`<${Row} key=${id(row)} row=${row} columns=${columns} below=${details?.(row)} />`)}</tbody>
    </table></div>
    ${(next || query.cursor) && html`
      <div class="pages">
        ${query.cursor && html`<button type="button" onClick=${() => setQuery({cursor: ''}, true)}>First page</button>`}
        ${next && html`<button type="button" onClick=${() => setQuery({cursor: next}, true)}>Next page</button>`}
      </div>`}`;
}

// turned is the order after a click on a column: numbers begin with the largest.
function turned(column, at) {
  if (at === column.sort) return '-' + column.sort;
  if (at === '-' + column.sort) return column.sort;
  return (column.number ? '-' : '') + column.sort;
}

function Head({column: c, at}) {
  const title = c.hidden ? html`<span class="hidden">${c.title}</span>` : c.title;
  if (!c.sort) return html`<th scope="col" class=${c.number ? 'number' : ''}>${title}</th>`;
  const order = {[c.sort]: 'ascending', ['-' + c.sort]: 'descending'}[at];
  return html`<th scope="col" class=${c.number ? 'number' : ''} aria-sort=${order}>
    <button type="button" class="sort ${order ?? ''}" onClick=${() => setQuery({sort: turned(c, at), cursor: ''})}>${title}</button></th>`;
}

// SortBy is for phones, where rows are cards and the table has no head.
const SortBy = ({columns, at}) => html`
  <label class="sortby"><span class="muted">Sort by</span>
    <select value=${at} onChange=${e => setQuery({sort: e.target.value, cursor: ''})}>
      ${columns.filter(c => c.sort).flatMap(c => [[c.sort, 'rising'], ['-' + c.sort, 'falling']].map(([order, word]) => html`
        <option key=${order} value=${order}>${c.title}, ${word}</option>`))}
    </select></label>`;

const Row = ({row, columns, below}) => html`
  <tr>${columns.map((c, i) => html`<${i === 0 ? 'th' : 'td'} key=${c.title} scope=${i === 0 ? 'row' : undefined}
    class="${c.className ?? ''} ${c.number ? 'number' : ''}" data-label=${i === 0 ? undefined : c.title}>${c.cell(row)}<//>`)}</tr>
  ${below && html`<tr class="more"><td colspan=${columns.length}>${below}</td></tr>`}`;
