// The difference between two policies.
import {html} from './ui.js';
import {changes, inherited, shown} from './policy.js';

// Diff shows from -> to, field by field. With policies it shows the inherited value of an unset
// field: "not set" alone would not tell the effect of a change.
export function Diff({from, to, name, policies}) {
  const list = changes(from ?? {}, to ?? {});
  if (list.length === 0) return html`<p class="muted">No field differs.</p>`;
  const side = (path, value) => {
    if (value !== undefined) return html`<${Value} value=${value} />`;
    if (!policies) return html`<span class="muted">not set</span>`;
    const base = inherited(path, name, policies);
    return html`<span class="muted">${shown(base.value ?? null)} <small>(${base.from ? 'from ' + base.from : 'default'})</small></span>`;
  };
  return html`
    <table class="diff">
      <thead><tr><th scope="col">Field</th><th scope="col">From</th><th scope="col">To</th></tr></thead>
      <tbody>${list.map(change => html`
        <tr key=${change.path}>
          <th scope="row"><code>${change.path}</code></th>
          ${isLong(change.from) && isLong(change.to)
            ? html`<td colspan="2"><${Lines} from=${change.from} to=${change.to} /></td>`
            : html`<td class="from">${side(change.path, change.from)}</td><td class="to">${side(change.path, change.to)}</td>`}
        </tr>`)}
      </tbody>
    </table>`;
}

// isLong reports values that need lines of their own, as a schema does.
const isLong = value => typeof value === 'object' && shown(value ?? null).length > 40;

const inLines = value => JSON.stringify(value, null, 2);

const Value = ({value}) => (isLong(value) ? html`<pre>${inLines(value)}</pre>` : html`<code>${shown(value)}</code>`);

// Lines shows two long values as one text, with the removed and the added lines.
const Lines = ({from, to}) => html`
  <pre class="lines">${lineDiff(inLines(from).split('\n'), inLines(to).split('\n')).map(([mark, text]) =>
    html`<span class=${mark === '-' ? 'gone' : mark === '+' ? 'come' : ''}>${mark} ${text}${'\n'}</span>`)}</pre>`;

const mostLines = 500; // the table below has the product of both

// lineDiff marks each line as kept ' ', removed '-' or added '+', by the longest
// common subsequence of lines.
function lineDiff(a, b) {
  if (a.length > mostLines || b.length > mostLines) return [...a.map(l => ['-', l]), ...b.map(l => ['+', l])];
  const common = Array.from({length: a.length + 1}, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const out = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push([' ', a[i++]]);
      j++;
    } else if (i < a.length && (j === b.length || common[i + 1][j] >= common[i][j + 1])) {
      out.push(['-', a[i++]]);
    } else {
      out.push(['+', b[j++]]);
    }
  }
  return out;
}
