// A payload as a tree, as text or as bytes.
import {html, useState} from './ui.js';
import {bytes as size, count} from './format.js';

const mostText = 65_536; // characters or bytes that are shown
const mostMembers = 200; // of an array or object, at first and with each "more"

const type = event => Object.entries(event.headers ?? {}).find(([name]) => name.toLowerCase() === 'content-type')?.[1];

// raw are the bytes of a payload. JSON is as the log has it but for the spaces.
function raw(event) {
  if (event.payload_base64 === undefined) return new TextEncoder().encode(JSON.stringify(event.payload));
  return Uint8Array.from(atob(event.payload_base64), c => c.charCodeAt(0));
}

// textOf is a text of the payload; null: its bytes are none.
function textOf(event, indent) {
  if (event.payload_base64 === undefined) return JSON.stringify(event.payload, null, indent);
  try {
    return new TextDecoder('utf-8', {fatal: true}).decode(raw(event));
  } catch {
    return null;
  }
}

// preview is the payload on one line.
export function preview(event, most = 160) {
  const text = textOf(event) ?? `${size(raw(event).length)} of ${type(event) ?? 'bytes'}`;
  return text.length > most ? text.slice(0, most) + '…' : text;
}

// contains says whether a payload has a text in it.
export const contains = (event, wanted) => (textOf(event) ?? '').toLowerCase().includes(wanted.toLowerCase());

export function Payload({event}) {
  const isJSON = event.payload_base64 === undefined;
  const text = textOf(event, 2);
  const views = [isJSON && typeof event.payload === 'object' && event.payload !== null && 'Tree', text !== null && 'Text', 'Hex'].filter(Boolean);
  const [view, setView] = useState(views[0]);
  return html`
    <section class="payload" aria-label="Payload">
      <div class="line">
        <h2>Payload <small>${isJSON ? 'JSON' : type(event) ?? 'bytes'}, ${size(raw(event).length)}</small></h2>
        <div class="segments">${views.map(v => html`<button key=${v} type="button" class="quiet" aria-pressed=${v === view ? 'true' : 'false'} onClick=${() => setView(v)}>${v}</button>`)}</div>
      </div>
      ${view === 'Tree' && html`<div class="tree code"><${Value} value=${event.payload} open /></div>`}
      ${view === 'Text' && html`<pre>${text.slice(0, mostText)}</pre>${text.length > mostText && html`<p class="muted">The first ${size(mostText)}; a download has all of it.</p>`}`}
      ${view === 'Hex' && html`<${Hex} bytes=${raw(event)} />`}
    </section>`;
}

const isObject = value => typeof value === 'object' && value !== null && !JSON.isRawJSON?.(value);

function Value({name, value, open, depth = 0}) {
  const [most, setMost] = useState(mostMembers);
  const [shown, setShown] = useState(open);
  const label = name !== undefined && html`<span class="name">${name}</span>: `;
  if (!isObject(value)) {
    const kind = value === null ? 'null' : typeof value === 'object' ? 'number' : typeof value;
    return html`<div class="leaf">${label}<span class="is-${kind}">${JSON.stringify(value).slice(0, mostText)}</span></div>`;
  }
  const members = Object.entries(value);
  const list = Array.isArray(value);
  if (members.length === 0) return html`<div class="leaf">${label}${list ? '[]' : '{}'}</div>`;
  // A closed part is not drawn: payloads may be large.
  return html`
    <details open=${shown} onToggle=${e => { e.stopPropagation(); setShown(e.currentTarget.open); }}>
      <summary>${label}${list ? `[${count(members.length)}]` : `{${count(members.length)}}`}</summary>
      ${shown && members.slice(0, most).map(([key, v]) => html`<${Value} key=${key} name=${key} value=${v} open=${depth < 2} depth=${depth + 1} />`)}
      ${shown && members.length > most && html`<button type="button" class="quiet" onClick=${() => setMost(most + mostMembers)}>${count(members.length - most)} more</button>`}
    </details>`;
}

const inLine = 16;

function Hex({bytes}) {
  const lines = [];
  const hex = n => n.toString(16).padStart(2, '0');
  for (let i = 0; i < Math.min(bytes.length, mostText / 4); i += inLine) {
    const part = [...bytes.slice(i, i + inLine)];
    const text = part.map(b => (b >= 32 && b < 127 ? String.fromCharCode(b) : '.')).join('');
    lines.push(`${i.toString(16).padStart(6, '0')}  ${part.map(hex).join(' ').padEnd(inLine * 3)} ${text}`);
  }
  return html`<pre class="hex">${lines.join('\n')}</pre>${bytes.length > mostText / 4 && html`<p class="muted">The first ${size(mostText / 4)} of ${size(bytes.length)}.</p>`}`;
}
